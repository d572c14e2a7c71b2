"""The notifier: one message for what changed meanwhile, within PostgreSQL's limit, and never a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from app.domain.task import Status, Task, new_task_id
from app.storage import notifier as module
from app.storage.database import Database
from app.storage.notifier import CHANGED, PAYLOAD_BYTES, READY, Notifier, chunks
from app.storage.store import Store
from tests.storage.racing import kill_connections
from tests.storage.scene import OWNER, RESULT, TOOL, Scene, attempt_of, new_task, question, response
from tests.support.waiting import eventually


class Heard:
    """All that arrives on the two channels, message by message."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []

    def hear(self, _connection: object, _pid: int, channel: str, payload: object) -> None:
        self.messages.append((channel, str(payload)))

    def on(self, channel: str) -> list[str]:
        return [payload for heard, payload in self.messages if heard == channel]

    def words(self, channel: str) -> list[str]:
        return " ".join(self.on(channel)).split()

    async def eventually(self, channel: str, *words: str) -> None:
        async def look() -> bool:
            return set(words) <= set(self.words(channel))

        await eventually(look)


@pytest.fixture
async def heard(db_url: str) -> AsyncIterator[Heard]:
    """A connection that listens to both channels."""
    heard, ear = Heard(), await asyncpg.connect(db_url)
    for channel in (READY, CHANGED):
        await ear.add_listener(channel, heard.hear)
    yield heard
    await ear.close(timeout=5)


@asynccontextmanager
async def running(notifier: Notifier) -> AsyncIterator[None]:
    """Let the notifier send meanwhile."""
    sending = asyncio.create_task(notifier.run())
    try:
        yield
        assert not sending.done()
    finally:
        sending.cancel()
        await asyncio.wait({sending})


@pytest.fixture
async def notifier(database: Database) -> AsyncIterator[Notifier]:
    """A notifier that is running."""
    notifier = Notifier(database)
    async with running(notifier):
        yield notifier


@pytest.fixture
async def task(scene: Scene) -> Task:
    """A task that is queued; nobody was told of it."""
    return await scene.queued()


async def test_a_change_is_told_with_the_tasks_id_and_a_ready_one_with_its_tool(
    notifier: Notifier, heard: Heard, task: Task
) -> None:
    notifier.changed(task)
    await heard.eventually(CHANGED, str(task.task_id))
    assert heard.on(READY) == []
    notifier.changed(task, ready=True)
    await heard.eventually(READY, TOOL)


async def test_only_a_task_that_works_is_ready(notifier: Notifier, heard: Heard, task: Task) -> None:
    for status in Status:
        notifier.changed(replace(task, tool=status.value, status=status), ready=True)
    await heard.eventually(READY, "working")
    assert heard.words(READY) == ["working"]


async def test_what_changes_while_one_message_is_on_its_way_goes_together_in_the_next(
    db_url: str, heard: Heard, task: Task
) -> None:
    ids = [new_task_id() for _ in range(50)]
    async with Database(db_url, connections=1) as database, running(notifier := Notifier(database)):
        async with database.connection():
            notifier.changed(replace(task, task_id=ids[0]), ready=True)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for task_id in ids[1:] * 2:
                notifier.changed(replace(task, task_id=task_id), ready=True)
        await heard.eventually(CHANGED, *map(str, ids))
    assert len(heard.on(CHANGED)) == 2
    assert sorted(heard.words(CHANGED)) == sorted(map(str, ids))
    assert heard.on(READY) == [TOOL, TOOL]


async def test_a_flood_is_told_completely_in_messages_that_fit(notifier: Notifier, heard: Heard, task: Task) -> None:
    ids = [new_task_id() for _ in range(1000)]
    for task_id in ids:
        notifier.changed(replace(task, task_id=task_id, tool=f"{'x' * 90}{task_id}"), ready=True)
    await heard.eventually(CHANGED, *map(str, ids))
    await heard.eventually(READY, *(f"{'x' * 90}{task_id}" for task_id in ids))
    assert all(len(payload.encode()) < 8000 for _, payload in heard.messages)
    assert len(heard.on(CHANGED)) == 5


async def test_every_verb_of_the_store_tells_what_it_changed(
    database: Database, notifier: Notifier, heard: Heard, connection: asyncpg.Connection[Any]
) -> None:
    scene = Scene(Store(database, notifier), connection)
    claim = await scene.parked("colour")
    answered = await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
    assert answered is not None
    claims = [claim, *[await scene.running() for _ in range(5)]]
    await scene.store.release(claims[1].worker_id, attempt_of(claims[1]))
    await scene.store.finish(claims[2], RESULT)
    await scene.store.cancel(OWNER, claims[3].task_id)
    await scene.store.status(claims[4], "halfway")
    await scene.store.ask(claims[5], [question("size")])
    await heard.eventually(CHANGED, *(str(claim.task_id) for claim in claims))
    await heard.eventually(READY, *(claim.task.tool for claim in claims))


async def test_a_verb_that_changed_nothing_tells_nothing(
    database: Database, notifier: Notifier, heard: Heard, connection: asyncpg.Connection[Any]
) -> None:
    scene = Scene(Store(database, notifier), connection)
    done, marker = await scene.completed(), await scene.completed()
    await heard.eventually(CHANGED, str(done.task_id), str(marker.task_id))
    heard.messages.clear()
    await scene.store.cancel(OWNER, done.task_id)
    await scene.store.answer(OWNER, done.task_id, {"colour": response()})
    await scene.store.release(done.worker_id, attempt_of(done))
    await scene.store.claim(scene.worker_id, [done.task.tool], 1)
    await scene.store.rescue()
    await scene.store.expire()
    notifier.changed(marker.task)
    await heard.eventually(CHANGED, str(marker.task_id))
    assert heard.messages == [(CHANGED, str(marker.task_id))]


async def test_a_repeated_create_tells_again_because_the_first_may_not_have(
    database: Database, scene: Scene, notifier: Notifier, heard: Heard
) -> None:
    new = new_task()
    await scene.store.create(new)  # committed, but its acknowledgement was lost
    await Store(database, notifier).create(new)
    await heard.eventually(READY, new.tool)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT pg_notify(channel, repeat('x', 9000)) FROM unnest($1::text[], $2::text[]) AS n (channel, payload)",
        "SELECT notify_nobody($1::text[], $2::text[])",
        "SELECT $1::int",
    ],
)
async def test_a_message_that_cannot_be_sent_is_lost_with_a_word_and_the_next_one_is_sent(
    notifier: Notifier, heard: Heard, task: Task, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(module, "_NOTIFY", statement)
        notifier.changed(task)

        async def said() -> bool:
            return [line["log_level"] for line in logs] == ["warning"]

        await eventually(said)
    other = replace(task, task_id=new_task_id())
    notifier.changed(other)
    await heard.eventually(CHANGED, str(other.task_id))
    assert heard.words(CHANGED) == [str(other.task_id)]


async def test_a_killed_connection_does_not_end_it(
    notifier: Notifier, heard: Heard, task: Task, connection: asyncpg.Connection[Any]
) -> None:
    for _ in range(3):
        await kill_connections(connection)
        sent: list[str] = []

        async def heard_again(sent: list[str] = sent) -> bool:  # those that meet the dead connection are lost
            sent.append(str(new_task_id()))
            notifier.changed(replace(task, task_id=UUID(sent[-1])))
            return not set(sent).isdisjoint(heard.words(CHANGED))

        await eventually(heard_again)


async def test_a_write_succeeds_although_nobody_can_be_told(
    database: Database, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_NOTIFY", "SELECT 1/0 FROM unnest($1::text[], $2::text[]) AS n")
    notifier = Notifier(database)
    async with running(notifier):
        scene = Scene(Store(database, notifier), connection)
        claim = await scene.completed()
        assert (await scene.state(claim)).result == RESULT


# -- chunks -----------------------------------------------------------------------------------------------------------

WORDS = st.lists(st.text(st.characters(exclude_characters=" ", exclude_categories=["Cs"]), min_size=1, max_size=200))


@given(WORDS, st.lists(st.integers(1, 9000), max_size=5))
def test_chunks_hold_every_word_that_fits_once_and_in_order(words: list[str], lengths: list[int]) -> None:
    words = words + ["ü" * length for length in lengths]
    made = chunks(words)
    assert " ".join(made).split(" ") == ([w for w in words if len(w.encode()) <= PAYLOAD_BYTES] or [""])
    assert all(len(text.encode()) <= PAYLOAD_BYTES for text in made)


def test_chunks_are_as_few_as_can_be() -> None:
    words = ["x" * 99] * 158  # 79 of them, with spaces, take 7,899 bytes
    assert [len(text) for text in chunks(words)] == [7899, 7899]
    assert chunks(["x" * PAYLOAD_BYTES, "y"]) == ["x" * PAYLOAD_BYTES, "y"]
    assert chunks([]) == []
