"""The real store on a real database does what the model says, whatever is done to it in whatever order.

A run's number decides its steps. In CI there are always the same few; by hand, as many others as wanted:
`pytest tests/storage/test_model.py --model-runs=1000-1999`. A failure prints the steps that lead to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

import asyncpg
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from app.domain.task import Claim, Idempotency, Json, NewTask, Reply, Task
from app.errors import KeyConflict, StaleAttempt
from app.storage.database import Database
from app.storage.store import Store
from tests.storage import facts
from tests.storage.model import STALE, TICK_MS, ModelTask, Row
from tests.storage.scene import ERROR, OWNER, RESULT, Scene, new_task, question, response
from tests.support.database import age_task

R = TypeVar("R")

TOOLS, KEYS, NAMES = ("weigh", "count"), "abcd", "xy"
LIVE_AT_MOST = 4
LEASE_MS = 3_600_000  # longer than any run takes: whether a worker is alive is decided by a step, not by the clock

RUN: Final = settings(
    max_examples=12,
    stateful_step_count=100,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def some_of(words: Iterable[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(list(words)), min_size=1, max_size=3, unique=True)


def half_ticks(*whole: int | None) -> st.SearchStrategy[int | None]:
    """Durations that no sum of whole ticks meets; None: for ever."""
    return st.sampled_from([None if n is None else int((n + 0.5) * TICK_MS) for n in whole])


POLICIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "tool": st.sampled_from(TOOLS),
        "reply": st.sampled_from([Reply.REQUEST, Reply.TASK]),
        "priority": st.integers(0, 3),
        "retention_ms": half_ticks(0, 5),
        "answer_within_ms": half_ticks(20, 2),
        "losses": st.sampled_from([1, 0, 3]),
        "timeout_ms": half_ticks(None, 1),
        "ttl_ms": half_ticks(None, 3, 30),
    }
)


class World:
    """What all machines share: the store, a connection beside it, and the loop in which they live."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.run = runner.get_loop().run_until_complete
        self._stack = AsyncExitStack()

    async def open(self, db_url: str) -> None:
        self.store = Store(await self._stack.enter_async_context(Database(db_url, connections=2)))
        self.connection: asyncpg.Connection[Any] = await asyncpg.connect(db_url)
        self._stack.push_async_callback(self.connection.close, timeout=5)

    async def close(self) -> None:
        await self._stack.aclose()


VERBS: dict[str, Callable[[Machine], int]] = {}
"""The steps that a machine may take: how likely each is beside the others, as things are. 0: it makes no sense."""


def verb(weight: Callable[[Machine], int]) -> Callable[[R], R]:
    """Let machines take this method as a step."""

    def register(method: Any) -> Any:
        VERBS[method.__name__] = weight
        return method

    return register


class Machine(RuleBasedStateMachine):
    """Does the same to the store and to the model.

    Tasks, workers and attempts go by numbers, so that steps can be read. A new verb is a method of the model and one
    here; what it writes is a field of `Row`. One rule takes all steps, since the rules that hypothesis leaves out of a
    run would be those without which nothing happens; which verbs a run does without is drawn here.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.run, self.store = world.run, world.store
        self.scene = Scene(world.store, world.connection)
        self.tasks: list[ModelTask] = []
        self.purged: set[int] = set()
        self.claims: list[Claim] = []
        self.workers = [uuid4() for _ in range(3)]
        self.lost: set[int] = set()
        self.seen: dict[UUID, facts.Seen] = {}
        self.run(self._begin())

    async def _begin(self) -> None:
        await self.scene.connection.execute("DELETE FROM perdure.tasks; DELETE FROM perdure.workers")
        for worker_id in self.workers:
            await self.scene.enlist(worker_id, lease_ms=LEASE_MS)

    @initialize(
        without=st.sets(st.sampled_from(["cancel", "lose", "age", "fail", "finish", "retry", "release"]), max_size=4)
    )
    def begin(self, without: set[str]) -> None:
        self.verbs = {name: weight for name, weight in VERBS.items() if name not in without}

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """Take a step."""
        self.data = data
        names = [name for name, weight in self.verbs.items() for _ in range(weight(self))]
        getattr(self, self.draw("verb", names))()

    # -- what steps choose from -----------------------------------------------------------------------------------

    def draw(self, label: str, choice: Sequence[R] | st.SearchStrategy[R]) -> R:
        strategy = choice if isinstance(choice, st.SearchStrategy) else st.sampled_from(choice)
        drawn: R = self.data.draw(strategy, label=label)
        return drawn

    @property
    def kept(self) -> list[int]:
        """Tasks that are not purged."""
        return [n for n in range(len(self.tasks)) if n not in self.purged]

    @property
    def live(self) -> list[int]:
        """Tasks that have not ended."""
        return [n for n in self.kept if not self.tasks[n].terminal]

    @property
    def running(self) -> list[int]:
        """Attempts that hold their task."""
        return [n for n, claim in enumerate(self.claims) if self.of(claim).holds(claim)]

    @property
    def waiting(self) -> list[ModelTask]:
        """Tasks that a worker can take."""
        return [task for task in self.tasks if task.waited is not None]

    @property
    def orphans(self) -> list[ModelTask]:
        """Tasks whose worker is lost."""
        lost = [self.workers[n] for n in self.lost]
        return [task for task in self.tasks if task.row.worker_id in lost]

    @property
    def spent(self) -> set[int]:
        """Tasks that are to be deleted."""
        return {n for n in self.kept if self.tasks[n].spent}

    def of(self, claim: Claim) -> ModelTask:
        """The task that this is, or was, an attempt at."""
        return next(task for task in self.tasks if task.new.task_id == claim.task_id)

    def attempt(self) -> Claim:
        """An attempt, more often one that runs than one that is over."""
        late = self.draw("late", [False, False, False, True])
        return self.claims[self.draw("attempt", range(len(self.claims)) if late or not self.running else self.running)]

    def any_task(self, *likely: int) -> tuple[str, ModelTask, bool]:
        """An owner, a task, and whether there is such a task of this owner."""
        task = self.draw("task", [*range(len(self.tasks)), *4 * likely])
        owner = self.draw("owner", [OWNER] * 5 + ["bob"])
        return owner, self.tasks[task], owner == OWNER and task not in self.purged

    # -- comparing ------------------------------------------------------------------------------------------------

    @invariant()
    def the_tables_hold_what_the_model_does(self) -> None:
        rows, broken = self.run(facts.look(self.scene.connection))
        assert broken == set()
        expected = {self.tasks[n].new.task_id: self.tasks[n].row for n in self.kept}
        assert {task_id: seen.row for task_id, seen in rows.items()} == expected
        self._history(rows)

    def _history(self, rows: Mapping[UUID, facts.Seen]) -> None:
        """Versions never fall, times change with them and only then, and what has ended never changes again."""
        for task_id in rows.keys() & self.seen.keys():
            old, new = self.seen[task_id], rows[task_id]
            assert new.row.version >= old.row.version
            assert new.updated_at >= old.updated_at
            assert (new.updated_at > old.updated_at) == (new.row.version > old.row.version)
            freed = replace(old.row, key=new.row.key)  # a key belongs to its task only until that expires
            assert not old.row.status.terminal or new == replace(old, row=freed)
        self.seen = dict(rows)

    def agree(self, said: Task | None, expected: Row | None) -> None:
        """What a caller is told is what the model says."""
        assert (said is None) == (expected is None)
        if said is not None and expected is not None:
            row = expected
            assert (said.status, said.status_message, said.reply) == (row.status, row.message, row.reply)
            assert (said.version, said.epoch, said.cancel_requested) == (row.version, row.epoch, row.cancel)
            assert (said.progress, said.progress_total) == row.progress

    def write(self, claim: Claim, name: str, *args: Any, **more: Any) -> None:
        """A write of an attempt, which may be over, and its task purged."""
        task = self.of(claim)
        try:
            said = self.run(getattr(self.store, name)(claim, *args, **more))
        except StaleAttempt:
            said = STALE
        gone = self.tasks.index(task) in self.purged
        expected = STALE if gone else getattr(task, name)(claim, *args, **more)
        if isinstance(said, Task) and isinstance(expected, Row):
            self.agree(said, expected)
        else:
            assert said == expected

    def move(self, call: Coroutine[Any, Any, list[Task]], due: list[ModelTask], name: str) -> None:
        """A verb of maintenance moves all that are due, each once."""
        said = self.run(call)
        moved = {task.task_id: task for task in said}
        assert moved.keys() == {task.new.task_id for task in due}
        assert len(moved) == len(said)
        for task in due:
            self.agree(moved[task.new.task_id], getattr(task, name)())

    # -- a task's life --------------------------------------------------------------------------------------------

    @verb(lambda machine: 3 * (len(machine.live) < LIVE_AT_MOST))
    def create(self) -> None:
        new, key = new_task(**self.draw("policy", POLICIES)), self.draw("key", [None, None, b"a", b"b"])
        if key is not None:
            new = replace(new, idempotency=Idempotency(key, self.draw("fingerprint", [b"1", b"1", b"2"])))
        self._create(new)

    def _create(self, new: NewTask) -> None:
        """Under a key that stands for a task which can still be read, there is no other."""
        key = new.idempotency
        for task in (self.tasks[n] for n in self.kept):
            if key is None or (task.new.tool, task.row.key) != (new.tool, key.key_hash):
                continue
            if task.expired:
                task.row.key = None
            elif task.new.idempotency != key:
                with pytest.raises(KeyConflict):
                    self.run(self.store.create(new))
                return
            else:
                self.agree(self.run(self.store.create(new)), task.row)
                return
        known = [task for task in self.tasks if task.new.task_id == new.task_id]
        if not known:
            self.tasks.append(ModelTask(new))
        self.agree(self.run(self.store.create(new)), (known or self.tasks)[-1].row)

    @verb(lambda machine: 5 if machine.waiting else 0)
    def claim(self) -> None:
        worker_id = self.workers[self.draw("worker", range(3))]
        tools, limit = self.draw("tools", some_of([*TOOLS, "none"])), self.draw("limit", [1, 2, 4])

        def urgency(task: ModelTask) -> tuple[int, float]:
            assert task.waited is not None
            return task.new.policy.priority, -task.waited

        expected = sorted(urgency(task) for task in self.waiting if task.new.tool in tools)
        while limit < len(expected) and expected[limit - 1] == expected[limit]:
            limit += 1  # which of two that have waited alike it would be is left to the store, but not to a run
        claims = self.run(self.store.claim(worker_id, tools, limit))
        assert [urgency(self.of(claim)) for claim in claims] == expected[:limit]
        for claim in sorted(claims, key=lambda claim: self.tasks.index(self.of(claim))):
            task = self.of(claim)
            task.claim(worker_id)
            self._knows(claim, task)
            self.claims.append(claim)

    def _knows(self, claim: Claim, task: ModelTask) -> None:
        """The attempt is told all that earlier ones left behind."""
        row = task.row
        self.agree(claim.task, row)
        assert (claim.worker_id, claim.failures) == (row.worker_id, row.failures)
        assert (claim.params, claim.capabilities) == (task.new.params, row.capabilities)
        assert claim.answers == row.answers
        assert claim.steps == {name: value for name, (_, value) in row.steps.items()}
        assert claim.questions == {key: request for key, (_, request) in row.questions.items()}
        left = None if claim.remaining_ms is None else facts.half_ticks(claim.remaining_ms)
        assert left == (None if row.deadline is None else row.deadline - task.age)

    @verb(lambda machine: 1 if machine.claims else 0)
    def finish(self) -> None:
        self.write(self.attempt(), "finish", RESULT)

    @verb(lambda machine: 4 if machine.claims else 0)
    def ask(self) -> None:
        """Keys that were asked before are left out by the attempt; where it does not, the whole round is refused."""
        claim = self.attempt()
        task = self.of(claim)
        questions = [question(key) for key in self.draw("keys", some_of(KEYS))]
        again = any(q.key in task.row.questions for q in questions)
        if again and task.holds(claim) and not task.row.cancel:
            with pytest.raises(asyncpg.UniqueViolationError):
                self.run(self.store.ask(claim, questions))
        else:
            self.write(claim, "ask", questions)

    @verb(lambda machine: 5 if any(task.shown for task in machine.tasks) else len(machine.tasks) > 0)
    def answer(self) -> None:
        owner, task, there = self.any_task(*(n for n, task in enumerate(self.tasks) if task.shown))
        keys = self.draw("keys", some_of([*KEYS, *3 * [question.key for question in task.shown], "never asked"]))
        responses = {key: response(f"{key} {len(task.row.answers)}") for key in keys}
        can = self.draw("capabilities", [None, None, Json('{"elicitation":{}}'), Json("{}")])
        said = self.run(self.store.answer(owner, task.new.task_id, responses, capabilities=can))
        self.agree(said, task.answer(responses, can) if there else None)

    # -- what else attempts do ------------------------------------------------------------------------------------

    @verb(lambda machine: 2 if machine.claims else 0)
    def step(self) -> None:
        name, value = self.draw("name", NAMES), self.draw("value", st.integers(0, 9))
        self.write(self.attempt(), "step", name, Json(str(value)))

    @verb(lambda machine: 2 if machine.claims else 0)
    def status(self) -> None:
        progress, total = self.draw("progress", [(None, None), (1.0, None), (2.0, 3.0)])
        self.write(self.attempt(), "status", self.draw("message", ["halfway", "nearly there"]), progress, total)

    @verb(lambda machine: 1 if machine.claims else 0)
    def detach(self) -> None:
        self.write(self.attempt(), "detach")

    @verb(lambda machine: 1 if machine.claims else 0)
    def fail(self) -> None:
        self.write(self.attempt(), "fail", ERROR, "It broke", internal=self.draw("internal", [None, "why"]))

    @verb(lambda machine: 2 if machine.claims else 0)
    def retry(self) -> None:
        pause_ms = self.draw("pause", st.just(0) | half_ticks(0, 1))
        self.write(self.attempt(), "retry", pause_ms, "It broke, and is tried again", "why")

    @verb(lambda machine: 2 if machine.claims else 0)
    def release(self) -> None:
        claims = [self.attempt() for _ in range(self.draw("attempts", [1, 2]))]
        worker_id = claims[0].worker_id
        said = self.run(self.store.release(worker_id, [(claim.task_id, claim.epoch) for claim in claims]))
        expected = {c.task_id: row for c in claims if c.worker_id == worker_id and (row := self.of(c).release(c))}
        assert {task.task_id for task in said} == expected.keys()
        for task in said:
            self.agree(task, expected[task.task_id])

    @verb(lambda _: 1)
    def holdings(self) -> None:
        worker_id = self.workers[self.draw("worker", range(3))]
        held = {(h.task_id, h.epoch, h.cancel_requested) for h in self.run(self.store.holdings(worker_id))}
        mine = [task for task in self.tasks if task.row.worker_id == worker_id]
        assert held == {(task.new.task_id, task.row.epoch, task.row.cancel) for task in mine}

    # -- what else clients do -------------------------------------------------------------------------------------

    @verb(lambda machine: 1 if machine.kept else 0)
    def create_again(self) -> None:
        """The acknowledgement was lost."""
        self._create(self.tasks[self.draw("task", self.kept)].new)

    @verb(lambda machine: 1 if machine.tasks else 0)
    def get(self) -> None:
        owner, task, there = self.any_task()
        state = self.run(self.store.get(owner, task.new.task_id))
        assert (state is not None) == there
        if state is not None:
            self.agree(state.task, task.row)
            assert (state.questions, state.task.expired) == (task.shown, task.expired)
            assert (state.result or state.error) == (task.row.outcome and task.row.outcome[1])
        assert self.run(self.store.count_live(OWNER, 3)) == min(3, len(self.live))

    @verb(lambda machine: 3 if machine.running else 1 if machine.tasks else 0)
    def cancel(self) -> None:
        owner, task, there = self.any_task(*self.live, *(n for n in self.live if self.tasks[n].row.worker_id))
        reply = self.draw("reply", [None, None, Reply.REQUEST])
        said = self.run(self.store.cancel(owner, task.new.task_id, reply=reply))
        self.agree(said, task.cancel(reply) if there else None)

    @verb(lambda machine: 1 if machine.tasks else 0)
    def detach_for(self) -> None:
        owner, task, there = self.any_task(*self.live)
        self.agree(self.run(self.store.detach_for(owner, task.new.task_id)), task.detach_for() if there else None)

    # -- faults and time ------------------------------------------------------------------------------------------

    @verb(lambda machine: 3 if machine.running else 1)
    def lose(self) -> None:
        """A worker falls silent, its row goes, or it is back with a fresh beat."""
        busy = [self.workers.index(self.claims[n].worker_id) for n in self.running]
        worker = self.draw("worker", [*busy, *range(3)])
        how = self.draw("how", ["silent", "gone", "gone", "back"])
        if how == "gone":
            delete = "DELETE FROM perdure.workers WHERE worker_id = $1"
            self.run(self.scene.connection.execute(delete, self.workers[worker]))
        else:
            silent_ms = LEASE_MS + 1 if how == "silent" else 0
            self.run(self.scene.enlist(self.workers[worker], lease_ms=LEASE_MS, silent_ms=silent_ms))
        (self.lost.discard if how == "back" else self.lost.add)(worker)

    @verb(lambda machine: 4 if machine.kept else 0)
    def age(self) -> None:
        task, ticks = self.tasks[self.draw("task", self.kept + 2 * self.live)], self.draw("ticks", [1, 3, 8])
        task.age += ticks
        self.run(age_task(self.scene.connection, task.new.task_id, ticks * TICK_MS / 1000))

    @verb(lambda machine: 8 if machine.orphans else 1)
    def rescue(self) -> None:
        self.move(self.store.rescue(), self.orphans, "rescue")

    @verb(lambda machine: 8 if any(task.overdue for task in machine.tasks) else 1)
    def expire(self) -> None:
        self.move(self.store.expire(), [task for task in self.tasks if task.overdue], "expire")

    @verb(lambda machine: 4 if machine.spent else 1)
    def purge(self) -> None:
        spent = self.spent
        assert self.run(self.store.purge()) == len(spent)
        self.purged |= spent
        self.run(self.store.forget_workers())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each run that is wanted."""
    first, _, last = metafunc.config.getoption("model_runs", "0-2").partition("-")
    metafunc.parametrize("number", range(int(first), int(last or first) + 1))


def test_the_store_does_what_the_model_says(db_url: str, number: int) -> None:
    def machine() -> Machine:
        return Machine(world)

    with asyncio.Runner() as runner:
        world = World(runner)
        world.run(world.open(db_url))
        try:
            run_state_machine_as_test(seed(number)(machine), settings=RUN)  # type: ignore[arg-type]  # any factory will do
        finally:
            world.run(world.close())
