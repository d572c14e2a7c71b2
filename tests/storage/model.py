"""What becomes of a task, in plain Python: no SQL, no locks, and a clock that only a test moves.

The store is held against this model, so it is written from the design, not from the statements. Times are ticks since
the task's creation; all durations of a policy end in a half, so that nothing is ever due at the very moment of a look.
A verb returns what the store's method gives to its caller: the row after it, None, a value, or `STALE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from app.domain.task import REQUEST_STATE_MS, TERMINAL, Claim, Json, NewTask, Question, Reply, Status
from app.storage.store import EXPIRED, LOST, STILL_KNOWN, TIMED_OUT, UNANSWERED

TICK_MS: Final = 600_000
STALE: Final = "stale"
"""What an attempt is told that no longer holds its task: nothing was written."""

Outcome = tuple[int | None, Json]


def ticks(milliseconds: int | None) -> float | None:
    """A duration in ticks; None stays None."""
    return None if milliseconds is None else milliseconds / TICK_MS


def earliest(*times: float | None) -> float | None:
    """The first of these times, of which some may never come."""
    return min((time for time in times if time is not None), default=None)


@dataclass
class Row:
    """All that the tables hold of one task. Two of them are equal when nobody could tell the tasks apart."""

    status: Status = Status.WORKING
    message: str | None = None
    reply: Reply = Reply.TASK
    ready: float | None = 0.0
    worker_id: UUID | None = None
    epoch: int = 0
    open: int = 0
    losses: int = 0
    failures: int = 0
    cancel: bool = False
    version: int = 1
    ttl: float | None = None
    deadline: float | None = None
    expires: float | None = None
    progress: tuple[float | None, float | None] = (None, None)
    capabilities: str = "{}"
    key: bytes | None = None
    questions: dict[str, tuple[int, Json]] = field(default_factory=dict)
    answers: dict[str, Json] = field(default_factory=dict)
    steps: dict[str, tuple[int, Json]] = field(default_factory=dict)
    attempts: dict[int, str] = field(default_factory=dict)
    outcome: Outcome | None = None


class ModelTask:
    """One task: its row, its policy, and how old it is."""

    def __init__(self, new: NewTask) -> None:
        self.new = new
        self.age = 0.0
        self.lifetime = ticks(new.policy.ttl_ms)
        key = None if new.idempotency is None else new.idempotency.key_hash
        self.row = Row(
            reply=new.reply, ttl=self.lifetime, deadline=self.lifetime, capabilities=new.capabilities, key=key
        )

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def terminal(self) -> bool:
        """True once it has ended."""
        return self.row.status in TERMINAL

    @property
    def waited(self) -> float | None:
        """For how long it has waited for a worker; None: it does not, or not yet."""
        return None if self.row.ready is None or self.row.ready > self.age else self.age - self.row.ready

    @property
    def overdue(self) -> bool:
        """True for a live task that is past its deadline."""
        return self.row.deadline is not None and self.row.deadline <= self.age

    @property
    def expired(self) -> bool:
        """True once its outcome is no longer shown."""
        return self.row.expires is not None and self.row.expires <= self.age

    @property
    def spent(self) -> bool:
        """True once it is to be deleted."""
        known = STILL_KNOWN.total_seconds() * 1000 / TICK_MS
        return self.row.expires is not None and self.row.expires + known <= self.age

    @property
    def shown(self) -> tuple[Question, ...]:
        """The questions that its client is shown, in their order."""
        if self.row.status is not Status.INPUT_REQUIRED:
            return ()
        asked = self.row.questions.items()
        return tuple(Question(key, request) for key, (_, request) in asked if key not in self.row.answers)

    def holds(self, claim: Claim) -> bool:
        """True while this attempt runs."""
        return (self.row.worker_id, self.row.epoch) == (claim.worker_id, claim.epoch)

    # -- its client -----------------------------------------------------------------------------------------------

    def answer(self, responses: Mapping[str, Json], capabilities: Json | None) -> Row | None:
        """The first answer to each key counts; with the last one the task waits for a worker."""
        row = self.row
        if row.status is not Status.INPUT_REQUIRED:
            return None
        row.capabilities = capabilities or row.capabilities
        fresh = {key: said for key, said in responses.items() if key in row.questions and key not in row.answers}
        if not fresh:
            return None
        row.answers |= fresh
        row.open -= len(fresh)
        self._tell(None)
        if row.open == 0:
            row.status = Status.WORKING
            self._wait()
        return row

    def cancel(self, reply: Reply | None = None) -> Row | None:
        """Ends it, unless a worker has to be told first."""
        if self.terminal or (reply or self.row.reply) is not self.row.reply:
            return None
        self.row.cancel = True
        if self.row.worker_id is None:
            self._end(Status.CANCELLED)
        return self.row

    def detach_for(self) -> Row | None:
        """It outlives its request, and so does a question."""
        row = self.row
        if self.terminal or row.reply is Reply.TASK:
            return None
        row.reply = Reply.TASK
        if row.status is Status.INPUT_REQUIRED:
            row.deadline = self._answer_by()
        return row

    # -- its attempts ---------------------------------------------------------------------------------------------

    def claim(self, worker_id: UUID) -> None:
        """A worker takes it; nobody sees a difference."""
        row = self.row
        assert self.waited is not None
        row.ready, row.worker_id, row.progress = None, worker_id, (None, None)
        row.epoch += 1
        timeout = ticks(self.new.policy.timeout_ms)
        row.deadline = earliest(self.lifetime, None if timeout is None else self.age + timeout)

    def step(self, claim: Claim, name: str, value: Json) -> Json | str:
        """What a step came to is written once, and told to those who came no later."""
        if self.holds(claim):
            self.row.steps.setdefault(name, (claim.epoch, value))
        epoch, stands = self.row.steps.get(name, (claim.epoch + 1, value))
        return stands if epoch <= claim.epoch else STALE

    def detach(self, claim: Claim) -> Row | str:
        """It outlives its request."""
        if not self.holds(claim):
            return STALE
        self.row.reply = Reply.TASK
        return self.row

    def status(self, claim: Claim, message: str, progress: float | None, total: float | None) -> Row | str:
        """Tells the client something, if it is new; progress is not for clients of the task."""
        if not self.holds(claim):
            return STALE
        if progress is not None:
            self.row.progress = progress, total
        if self.row.message != message:
            self._tell(message)
        return self.row

    def ask(self, claim: Claim, questions: Sequence[Question]) -> Row | str:
        """Parks the task, unless it is to be cancelled."""
        row = self.row
        if not self.holds(claim):
            return row if claim.epoch in {epoch for epoch, _ in row.questions.values()} else STALE
        if row.cancel:
            return self._stop("cancelled")
        row.questions |= {q.key: (claim.epoch, q.request) for q in questions}
        row.open = len(questions)
        row.status, row.worker_id = Status.INPUT_REQUIRED, None
        row.deadline = self._answer_by()
        self._tell(None)
        return row

    def finish(self, claim: Claim, result: Json) -> Row | str:
        """Ends it with a result, whatever was wanted of it."""
        return self._conclude(claim, Status.COMPLETED, None, result)

    def fail(self, claim: Claim, error: Json, message: str, *, internal: str | None) -> Row | str:
        """Ends it with an error, of which operators may learn more."""
        if self.holds(claim) and internal is not None:
            self.row.attempts[claim.epoch] = "error"
        return self._conclude(claim, Status.FAILED, message, error)

    def retry(self, claim: Claim, pause_ms: int, message: str, _internal: str) -> Row | str:
        """Gives it back to be tried again, unless the task is to be cancelled."""
        row = self.row
        if not self.holds(claim):
            return row if row.attempts.get(claim.epoch) in ("retried", "cancelled") else STALE
        row.failures += 1
        row.attempts[claim.epoch] = "cancelled" if row.cancel else "retried"
        if row.cancel:
            return self._end(Status.CANCELLED)
        self._tell(message)
        self._wait(pause_ms / TICK_MS)
        return row

    def release(self, claim: Claim) -> Row | None:
        """Gives it back with nothing used up; None: it was not the attempt's to give."""
        if not self.holds(claim):
            return None
        return self._stop("cancelled" if self.row.cancel else "released")

    # -- what happens to it ---------------------------------------------------------------------------------------

    def rescue(self) -> Row:
        """Its worker is lost."""
        exhausted = self.row.losses >= self.new.policy.losses
        self.row.losses += 1
        if exhausted and not self.row.cancel:
            self.row.attempts[self.row.epoch] = "lost"
            return self._end(Status.FAILED, LOST[1], (None, LOST[0]))
        return self._stop("lost")

    def expire(self) -> Row:
        """Its deadline is over."""
        row = self.row
        if row.worker_id is not None:
            row.attempts[row.epoch] = "expired"
        if self.lifetime is not None and self.lifetime <= self.age:
            error, message = EXPIRED
        elif row.status is Status.INPUT_REQUIRED:
            if row.reply is Reply.REQUEST:
                return self._end(Status.CANCELLED)
            error, message = UNANSWERED
        else:
            error, message = TIMED_OUT
        return self._end(Status.FAILED, message, (None, error))

    # -- what verbs have in common --------------------------------------------------------------------------------

    def _answer_by(self) -> float | None:
        longest = REQUEST_STATE_MS if self.row.reply is Reply.REQUEST else self.new.policy.answer_within_ms
        return earliest(self.lifetime, self.age + min(longest, self.new.policy.answer_within_ms) / TICK_MS)

    def _tell(self, message: str | None) -> None:
        self.row.message = message
        self.row.version += 1

    def _wait(self, pause: float = 0.0) -> None:
        self.row.worker_id, self.row.ready = None, self.age + pause
        self.row.deadline = self.lifetime

    def _stop(self, how: str) -> Row:
        """An attempt is over without an outcome: the next one may come, unless the task is to be cancelled."""
        self.row.attempts[self.row.epoch] = how
        if self.row.cancel:
            return self._end(Status.CANCELLED)
        if self.row.message is not None:
            self._tell(None)
        self._wait()
        return self.row

    def _conclude(self, claim: Claim, status: Status, message: str | None, text: Json) -> Row | str:
        if self.holds(claim):
            return self._end(status, message, (claim.epoch, text))
        mine = self.row.outcome is not None and self.row.outcome[0] == claim.epoch
        return self.row if mine else STALE

    def _end(self, status: Status, message: str | None = None, outcome: Outcome | None = None) -> Row:
        kept = self.age + self.new.policy.retention_ms / TICK_MS
        expires = kept if self.lifetime is None else max(kept, self.lifetime)
        self.row = replace(
            self.row,
            status=status,
            outcome=outcome,
            ready=None,
            worker_id=None,
            open=0,
            deadline=None,
            expires=expires,
            ttl=expires,
        )
        self._tell(message)
        return self.row
