"""One task that cannot be moved does not keep the others: they are moved, and operators are told of the one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from app.domain.task import Claim
from app.storage.database import Database
from app.storage.store import STILL_KNOWN, Store
from app.worker.heartbeat import Heartbeat
from app.worker.maintenance.expire import expire
from app.worker.maintenance.purge import purge
from app.worker.maintenance.rescue import rescue
from tests.storage.scene import Scene

TRUSTED = cast("Heartbeat", SimpleNamespace(trusted=True))

# Whatever else it may be in life: whoever touches one of these rows gets an error.
BREAK = """
CREATE FUNCTION perdure.refuse() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'task % is broken', OLD.task_id; END $$;
CREATE TRIGGER broken BEFORE UPDATE OR DELETE ON perdure.tasks
FOR EACH ROW WHEN (OLD.owner = 'broken') EXECUTE FUNCTION perdure.refuse();"""


@pytest.fixture
async def scene(db_url: str) -> AsyncIterator[Scene]:
    """Makes tasks on the test's own database."""
    connection = await asyncpg.connect(db_url)
    async with Database(db_url, connections=2) as database:
        yield Scene(Store(database), connection)
    await connection.close(timeout=5)


async def lost(scene: Scene, **kind: Any) -> Claim:
    return await scene.running(worker_id=uuid4(), **kind)


async def overdue(scene: Scene, **kind: Any) -> Claim:
    claim = await scene.parked(**kind)
    await scene.overrun(claim)
    return claim


async def spent(scene: Scene, **kind: Any) -> Claim:
    claim = await scene.completed(retention_ms=0, **kind)
    await scene.age(claim, STILL_KNOWN.total_seconds() + 1)
    return claim


@dataclass(frozen=True)
class Round:
    """A loop of maintenance: what it finds, its body, and one batch of it."""

    arrange: Callable[..., Awaitable[Claim]]
    body: Callable[[Store], Awaitable[int]]
    batch: Callable[[Store, int, set[UUID]], Awaitable[object]]


ROUNDS = {
    "rescue": Round(lost, lambda s: rescue(s, TRUSTED), lambda s, n, broken: s.rescue(n, broken=broken)),
    "expire": Round(overdue, expire, lambda s, n, broken: s.expire(n, broken=broken)),
    "purge": Round(spent, purge, lambda s, n, broken: s.purge(n, broken=broken)),
}


@pytest.mark.parametrize("verb", ROUNDS)
async def test_the_others_are_moved_and_operators_are_told(scene: Scene, verb: str) -> None:
    claims = [await ROUNDS[verb].arrange(scene, owner=owner) for owner in ("broken", "a", "b", "broken", "c")]
    await scene.connection.execute(BREAK)
    before = [await scene.everything(claims[n]) for n in (0, 3)]
    with capture_logs() as logs:
        assert await ROUNDS[verb].body(scene.store) == 3
    assert [await scene.everything(claims[n]) for n in (0, 3)] == before
    told = [line for line in logs if line["log_level"] == "error"]
    assert {line["tool"] for line in told} == {claims[n].task.tool for n in (0, 3)}
    assert [(line["verb"], line["fault"]) for line in told] == [(verb, "RaiseError")] * 2
    assert {line["task_id"] for line in logs if line["log_level"] == "debug"} == {
        str(claims[n].task_id) for n in (0, 3)
    }
    assert not [line for line in logs if line["log_level"] != "debug" and str(claims[0].task_id) in str(line)]


@pytest.mark.parametrize("verb", ROUNDS)
async def test_more_of_them_than_a_batch_holds_do_not_hide_the_rest(scene: Scene, verb: str) -> None:
    for owner in ("broken",) * 5 + ("a", "b"):
        await ROUNDS[verb].arrange(scene, owner=owner)
    await scene.connection.execute(BREAK)
    broken: set[UUID] = set()
    moved = 0
    while batch := await ROUNDS[verb].batch(scene.store, 2, broken):
        moved += batch if isinstance(batch, int) else len(cast("list[object]", batch))
    assert (moved, len(broken)) == (2, 5)


@pytest.mark.parametrize("verb", ROUNDS)
async def test_a_row_that_has_been_mended_is_moved_in_the_next_round(scene: Scene, verb: str) -> None:
    await ROUNDS[verb].arrange(scene, owner="broken")
    await scene.connection.execute(BREAK)
    with capture_logs() as logs:
        assert [await ROUNDS[verb].body(scene.store) for _ in range(2)] == [0, 0]
    assert len([line for line in logs if line["log_level"] == "error"]) == 2
    await scene.connection.execute("DROP TRIGGER broken ON perdure.tasks")
    assert await ROUNDS[verb].body(scene.store) == 1


async def test_an_attempt_whose_end_is_on_record_already_does_not_keep_the_others_from_being_rescued(
    scene: Scene,
) -> None:
    odd, sound = await lost(scene), await lost(scene)
    record = "INSERT INTO perdure.task_attempts (task_id, epoch, ended) VALUES ($1, 1, 'error')"
    await scene.connection.execute(record, odd.task_id)
    assert await rescue(scene.store, TRUSTED) == 1
    assert (await scene.row(sound))["losses"] == 1
