"""Many subscribers over two API processes, many tasks with questions, and listeners that are cut off all the while."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle

import pytest
from pydantic import BaseModel

from app.tools.context import ToolContext
from app.tools.registry import Registry, tool
from tests.methods.test_push import cut_listeners
from tests.support.rpc import TASKS
from tests.support.service import Service, serving
from tests.support.subscriber import Subscriber, subscribed
from tests.support.waiting import eventually
from tests.support.worker import working

SUBSCRIBERS, COUNT = 40, 200
"""A fifth of what it has been run with by hand, for the sake of the time."""

WATCHED = 10
"""The tasks that one subscriber follows; each is followed by several."""

CUTS = 5


class Sure(BaseModel):
    """An answer."""

    yes: bool


@tool
async def confirm(ctx: ToolContext) -> str:
    """Ask, and say what was answered."""
    return str(await ctx.elicit("sure", "Sure?", Sure))


@dataclass
class Scene:
    """What the subscribers have seen."""

    services: list[Service]
    answered: set[str] = field(default_factory=set)
    ended: Counter[str] = field(default_factory=Counter)

    async def follow(self, service: Service, subscriber: Subscriber) -> None:
        """Read until all tasks have ended, and answer what nobody has."""
        left = set(subscriber.honoured["taskIds"])
        while left:
            task = await subscriber.next(seconds=60)
            if task["status"] == "completed":
                left.remove(task["taskId"])
                self.ended[task["taskId"]] += 1
            elif task["status"] == "input_required" and task["taskId"] not in self.answered:
                self.answered.add(task["taskId"])
                answer = {"sure": {"action": "accept", "content": {"yes": True}}}
                await service.client.rpc("tasks/update", {"taskId": task["taskId"], "inputResponses": answer})
            else:
                assert task["status"] in ("working", "input_required"), task

    async def cut_in_between(self) -> None:
        """Kill the listeners so many times, evenly over the whole."""
        for number in range(1, CUTS + 1):

            async def is_cut(number: int = number) -> bool:
                if self.ended.total() < SUBSCRIBERS * WATCHED * number / (CUTS + 1):
                    return False
                return await cut_listeners(self.services[0].connection) > 0

            await eventually(is_cut, seconds=100)


@asynccontextmanager
async def replicas(db_url: str) -> AsyncIterator[Scene]:
    """Two API processes' worth of objects, and a worker."""
    tools = Registry([confirm])
    async with (
        serving(db_url, tools, listens=True, poll_seconds=1.0) as one,
        serving(db_url, tools, listens=True, poll_seconds=1.0) as other,
        working(db_url, confirm, notifies=True, slots=8),
    ):
        yield Scene([one, other])


@pytest.mark.requirement("R35", "R55")
async def test_every_subscriber_on_every_replica_sees_the_end_of_every_task_of_its_own(db_url: str) -> None:
    async with replicas(db_url) as scene, AsyncExitStack() as stack:
        client = scene.services[0].client.with_(capabilities={"elicitation": {}, **TASKS})
        tasks = [(await client.call("confirm")).result["taskId"] for _ in range(COUNT)]
        following: dict[Subscriber, asyncio.Task[None]] = {}
        for number, service in zip(range(SUBSCRIBERS), cycle(scene.services), strict=False):
            own = [tasks[(number * WATCHED + offset) % COUNT] for offset in range(WATCHED)]
            subscriber = await stack.enter_async_context(subscribed(service.client, *own, request_id=number))
            following[subscriber] = asyncio.create_task(scene.follow(service, subscriber))
        await asyncio.gather(scene.cut_in_between(), *following.values())
        assert scene.ended == dict.fromkeys(tasks, SUBSCRIBERS * WATCHED // COUNT)
        for service in scene.services:
            await service.server.stop()
        for subscriber in following:  # the oracle: each task only forwards, no state twice, nothing after its end
            assert (await subscriber.rest()).result["resultType"] == "complete"
