"""The table of transitions, held against the CHECKs, the README's diagram, and what the store really does."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from app.domain.lifecycle import INITIAL, LIVE, TRANSITIONS, Edge, edges
from app.domain.task import TERMINAL, Claim, Json, Reply, Status, Task
from app.errors import StaleAttempt
from app.storage.database import Database
from app.storage.store import Store
from tests.storage.scene import ERROR, OWNER, RESULT, Scene, attempt_of, question, response

README = Path(__file__).parents[2] / "README.md"

Place = Callable[[Scene], Awaitable[Task | Claim]]
Verb = Callable[[Scene, Task | Claim], Awaitable[object]]


@pytest.fixture
async def scene(db_url: str) -> AsyncIterator[Scene]:
    """Makes tasks on the test's own database."""
    connection = await asyncpg.connect(db_url)
    async with Database(db_url, connections=2) as database:
        yield Scene(Store(database), connection)
    await connection.close(timeout=5)


# -- as data ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R52")
def test_no_verb_leaves_a_terminal_state() -> None:
    assert {edge[0] for transition in TRANSITIONS.values() for edge in transition.edges} == LIVE


def test_every_state_can_be_reached_and_every_live_one_be_left() -> None:
    reached = {INITIAL}
    while more := {after for before, after in edges() if before in reached} - reached:
        reached |= more
    assert reached == set(Status)
    assert {before for before, _ in edges()} == LIVE


def test_only_attempts_finish_fail_or_ask() -> None:
    assert {verb for verb, t in TRANSITIONS.items() if t.fenced} == {
        "step",
        "status",
        "ask",
        "finish",
        "fail",
        "retry",
        "release",
    }


# -- against the table's CHECKs ---------------------------------------------------------------------------------------


async def states_in(connection: asyncpg.Connection[Any], constraint: str) -> set[str]:
    """The states that a CHECK of the tasks' table names."""
    definition = await connection.fetchval(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = 'perdure.tasks'::regclass AND conname = $1",
        constraint,
    )
    return set(re.findall(r"'(\w+)'::text", definition))


async def test_the_tables_states_are_these(scene: Scene) -> None:
    assert await states_in(scene.connection, "tasks_status") == set(Status)
    assert await states_in(scene.connection, "tasks_terminal_is_finished") == TERMINAL


async def test_the_states_that_a_worker_or_a_question_belongs_to_are_the_live_ones(scene: Scene) -> None:
    assert await states_in(scene.connection, "tasks_working_waits_or_runs") == {Status.WORKING}
    assert await states_in(scene.connection, "tasks_parked_has_questions") == {Status.INPUT_REQUIRED}


# -- against the diagram ----------------------------------------------------------------------------------------------


def test_the_diagram_in_the_readme_shows_these_edges() -> None:
    diagram = re.search(r"```mermaid\s+stateDiagram(?:-v2)?\n(.*?)```", README.read_text(), re.DOTALL)
    assert diagram is not None, "README.md holds no state diagram"
    arrows = set(re.findall(r"^\s*(\S+)\s*-->\s*([^\s:]+)", diagram[1], re.MULTILINE))
    drawn = {(before, after) for before, after in arrows if "[*]" not in (before, after) and before != after}
    assert drawn == {(before.value, after.value) for before, after in edges()}
    assert {after for before, after in arrows if before == "[*]"} == {INITIAL.value}
    assert {before for before, after in arrows if after == "[*]"} in (set(), {s.value for s in TERMINAL})


# -- against the store ------------------------------------------------------------------------------------------------


async def crashing(scene: Scene) -> Claim:
    return await scene.running(losses=0)


async def saying(scene: Scene) -> Claim:
    claim = await scene.running()
    await scene.store.status(claim, "halfway")
    return claim


async def parked_with_two(scene: Scene) -> Claim:
    return await scene.parked("colour", "size")


async def parked_on_a_request(scene: Scene) -> Claim:
    return await scene.parked("colour", reply=Reply.REQUEST)


async def queued_on_a_request(scene: Scene) -> Task:
    return await scene.queued(reply=Reply.REQUEST)


async def running_on_a_request(scene: Scene) -> Claim:
    return await scene.running(reply=Reply.REQUEST)


async def answered(scene: Scene) -> Task:
    claim = await scene.parked("colour")
    task = await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
    assert task is not None
    return task


async def failed_by_nobody(scene: Scene) -> Claim:
    claim = await scene.running(losses=0, worker_id=uuid4())
    await scene.store.rescue()
    return claim


PLACES: dict[str, tuple[Status, Place]] = {
    "queued": (Status.WORKING, Scene.queued),
    "queued, on a request": (Status.WORKING, queued_on_a_request),
    "answered": (Status.WORKING, answered),
    "running": (Status.WORKING, Scene.running),
    "running, one loss from its end": (Status.WORKING, crashing),
    "running, with a status message": (Status.WORKING, saying),
    "running, on a request": (Status.WORKING, running_on_a_request),
    "running, with a cancel pending": (Status.WORKING, Scene.stopping),
    "parked": (Status.INPUT_REQUIRED, Scene.parked),
    "parked, with two questions": (Status.INPUT_REQUIRED, parked_with_two),
    "parked, on a request": (Status.INPUT_REQUIRED, parked_on_a_request),
    "completed": (Status.COMPLETED, Scene.completed),
    "failed": (Status.FAILED, Scene.failed),
    "failed by nobody": (Status.FAILED, failed_by_nobody),
    "cancelled": (Status.CANCELLED, Scene.cancelled),
}


def attempt(write: Callable[[Store, Claim], Awaitable[object]]) -> Verb:
    """A verb of the attempt that had the task last; there is none for a task that was never claimed."""

    async def verb(scene: Scene, task: Task | Claim) -> None:
        if isinstance(task, Claim):
            await write(scene.store, task)

    return verb


async def claim(scene: Scene, task: Task | Claim) -> None:
    tool = task.tool if isinstance(task, Task) else task.task.tool
    await scene.store.claim(scene.worker_id, [tool], 1)


async def lose_the_worker(scene: Scene, _: Task | Claim) -> None:
    await scene.connection.execute("DELETE FROM perdure.workers")


async def run_out_of_time(scene: Scene, task: Task | Claim) -> None:
    if (await scene.row(task))["finished_at"] is None:
        await scene.overrun(task)


BEFORE: dict[str, Verb] = {"rescue": lose_the_worker, "expire": run_out_of_time}
VERBS: dict[str, Verb] = {
    "claim": claim,
    "step": attempt(lambda store, claim: store.step(claim, "fetch", Json("1"))),
    "status": attempt(lambda store, claim: store.status(claim, "nearly there")),
    "ask": attempt(lambda store, claim: store.ask(claim, [question("shape")])),
    "answer": lambda scene, task: scene.store.answer(OWNER, task.task_id, {"colour": response()}),
    "finish": attempt(lambda store, claim: store.finish(claim, RESULT)),
    "fail": attempt(lambda store, claim: store.fail(claim, ERROR, "It broke", internal="why")),
    "retry": attempt(lambda store, claim: store.retry(claim, 60_000, "Again later", "why")),
    "release": attempt(lambda store, claim: store.release(claim.worker_id, attempt_of(claim))),
    "cancel": lambda scene, task: scene.store.cancel(OWNER, task.task_id),
    "detach": lambda scene, task: scene.store.detach_for(OWNER, task.task_id),
    "rescue": lambda scene, _: scene.store.rescue(),
    "expire": lambda scene, _: scene.store.expire(),
}


def test_every_verb_of_the_table_is_tried() -> None:
    assert VERBS.keys() == TRANSITIONS.keys()


async def applied(scene: Scene, verb: str, arrive: Place) -> tuple[Edge | None, bool, bool]:
    """Apply a verb to a task; the edge that it made if anything changed, whether clients see it, whether it says so."""
    task = await arrive(scene)
    if verb in BEFORE:
        await BEFORE[verb](scene, task)
    old, old_view = await scene.everything(task), await view(scene, task)
    try:
        await VERBS[verb](scene, task)
    except StaleAttempt:
        assert TRANSITIONS[verb].fenced
        assert await scene.everything(task) == old
    new, new_view = await scene.everything(task), await view(scene, task)
    (row,), (row_after,) = old["tasks"], new["tasks"]
    steps = row_after["version"] - row["version"]
    assert steps in (0, 1)
    assert (row_after["updated_at"] > row["updated_at"]) == bool(steps)
    edge = None if new == old else (Status(row["status"]), Status(row_after["status"]))
    return edge, new_view != old_view, bool(steps)


async def view(scene: Scene, task: Task | Claim) -> tuple[object, ...]:
    """All of a task that a client sees, but for when and how often it changed, and the advice on polling."""
    state = await scene.state(task)
    seen = state.task
    return seen.status, seen.status_message, seen.ttl_ms, state.questions, state.result, state.error


@pytest.mark.requirement("R52")
@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_makes_the_edges_of_the_table_and_no_other_and_tells_clients_what_they_can_see(
    scene: Scene, verb: str
) -> None:
    made: set[Edge] = set()
    for place, (before, arrive) in PLACES.items():
        edge, seen, told = await applied(scene, verb, arrive)
        assert seen == told, place
        assert edge is None or edge[0] == before, place
        made |= {edge} if edge else set()
        await scene.connection.execute("DELETE FROM perdure.tasks")
    assert made == TRANSITIONS[verb].edges


@pytest.mark.requirement("R52")
@pytest.mark.parametrize("place", [name for name, (status, _) in PLACES.items() if status in TERMINAL])
async def test_a_terminal_state_never_changes_whatever_is_tried(scene: Scene, place: str) -> None:
    task = await PLACES[place][1](scene)
    before = await scene.everything(task)
    for verb in VERBS:
        with suppress(StaleAttempt):
            await VERBS[verb](scene, task)
        assert await scene.everything(task) == before, verb
