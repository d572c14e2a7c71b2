"""Open pages are told when there is something new to see."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientResponse

from app.domain.task import Json
from app.http.ui import live
from app.http.ui.sessions import SESSION_SECONDS, Sessions
from app.storage.inspection import TaskRow
from app.storage.operator import Operator
from tests.http.ui.desks import PASSWORD, Reader, pages
from tests.storage.scene import Scene

WAIT_SECONDS = 30.0


@pytest.fixture(autouse=True)
def _restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REST_SECONDS", 0.05)
    monkeypatch.setattr(live, "LEISURE", 1)


async def digest(reader: Reader, path: str) -> str:
    found = re.search(r'data-seen="([0-9a-f]+)"', (await reader.get(path)).html)
    assert found
    return found[1]


@asynccontextmanager
async def stream(reader: Reader, path: str, seen: str) -> AsyncIterator[ClientResponse]:
    url = f"{reader.url}/ui/events?page={quote('/ui' + path, safe='')}&seen={seen}"
    async with reader.session.get(url) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        yield answer


async def changed(answer: ClientResponse) -> str:
    """The digest of the next change."""
    async with asyncio.timeout(WAIT_SECONDS):
        async for line in answer.content:
            if line.startswith(b"data: "):
                return line[6:].strip().decode()
    raise AssertionError("the stream has ended")


@pytest.mark.parametrize("listens", [True, False])
async def test_a_change_is_told_and_the_page_is_then_at_it(listens: bool, db_url: str, scene: Scene) -> None:
    claims = [await scene.parked() for _ in range(4)]
    places = f"/tasks/{claims[0].task_id}", "/tasks?status=input_required", "/inbox", "/"
    async with pages(db_url, listens=listens) as reader:
        for claim, place in zip(claims, places, strict=True):
            seen = await digest(reader, place)
            async with stream(reader, place, seen) as answer:
                assert answer.headers["Cache-Control"] == "no-store"
                await reader.operator.answer(claim.task_id, {"colour": Json('{"action":"decline"}')})
                assert await changed(answer) != seen


async def test_a_change_between_the_page_and_its_stream_is_not_missed(db_url: str, scene: Scene) -> None:
    async with pages(db_url, listens=True) as reader:
        seen = await digest(reader, "/tasks")
        await scene.queued()
        async with stream(reader, "/tasks", seen) as answer:
            assert await changed(answer) == await digest(reader, "/tasks")


async def test_without_changes_a_stream_only_says_that_it_lives(
    db_url: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "KEEPALIVE_SECONDS", 0.1)
    task = await scene.running()
    async with pages(db_url) as reader:
        path = f"/tasks/{task.task_id}"
        async with stream(reader, path, await digest(reader, path)) as answer:
            lines = [await answer.content.readline() for _ in range(8)]
    assert lines == [b"retry: 2000\n", b"\n"] + [b": here\n", b"\n"] * 3


async def test_what_takes_long_to_see_is_seldom_looked_at(
    reader: Reader, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, enough = 0, asyncio.Event()

    async def slow(*_: Any, **__: Any) -> list[TaskRow]:
        nonlocal looks
        looks += 1
        if looks == 3:  # two for a page that is told at once, and one more after the rest
            enough.set()
        await asyncio.sleep(0.2)
        return []

    monkeypatch.setattr(live, "LEISURE", 3)
    monkeypatch.setattr(Operator, "tasks", slow)
    started = asyncio.get_running_loop().time()
    async with stream(reader, "/tasks", ""), asyncio.timeout(WAIT_SECONDS):
        await enough.wait()
    assert asyncio.get_running_loop().time() - started >= 0.2 + 0.2 + 3 * 0.2


async def test_a_task_that_is_purged_is_told_once(db_url: str, scene: Scene) -> None:
    claim = await scene.completed()
    path = f"/tasks/{claim.task_id}"
    async with pages(db_url, listens=True) as reader, stream(reader, path, await digest(reader, path)) as answer:
        async for _ in reader.operator.purge([claim.task_id]):
            pass
        assert await changed(answer) == "gone"


async def test_streams_end_when_the_process_stops_and_with_their_session(db_url: str, scene: Scene) -> None:
    async with pages(db_url) as reader, stream(reader, "/tasks", "") as answer:
        await changed(answer)
        reader.site.desk.closing.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await answer.content.read()
    now = 1_000_000.0
    async with pages(db_url, sessions=Sessions(PASSWORD, clock=lambda: now)) as reader:
        now += SESSION_SECONDS - 0.2
        async with stream(reader, "/tasks", "") as answer, asyncio.timeout(WAIT_SECONDS):
            await answer.content.read()


async def test_no_more_streams_are_open_than_a_process_bears(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST", 1)
    async with stream(reader, "/tasks", "") as answer:
        await changed(answer)
        assert (await reader.get("/events?page=/ui/tasks")).status == 503
        answer.close()

    async with asyncio.timeout(WAIT_SECONDS):
        while (await reader.get("/events?page=/ui/nothing")).status == 503:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("place", ["", "/ui/nothing", "/other", "/ui/tasks/nonsense", "//[", "/ui/events"])
async def test_there_is_no_stream_for_what_is_no_page(place: str, reader: Reader) -> None:
    assert (await reader.get(f"/events?page={quote(place, safe='')}")).status == 404
