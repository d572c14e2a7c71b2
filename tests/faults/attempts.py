"""Whether a task ever ran twice at once, and how soon the tasks of a killed worker ran again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from app.worker.maintenance.rescue import INTERVAL_SECONDS
from tests.faults.evidence import Evidence, Key
from tests.faults.processes import Fleet, Member
from tests.faults.windows import FOREVER, Window

SLACK_SECONDS = 3.0
"""What a busy machine may add to the time that a rescue takes."""


@dataclass
class Attempt:
    """When a handler ran, as it noted itself; `end`: that of its process if it was killed."""

    pid: int
    begin: float
    end: float


@dataclass(frozen=True)
class Recovery:
    """A task that a killed worker had held. Seconds from the kill:

    Attributes:
        rescued: until it was back in the queue.
        resumed: until it ran again; None where it did not, since it was cancelled or had lost too many.
        possible: until it could be rescued: the lease was over, and another worker had been up for a lease, with the
            database, so that it could believe in the silence.
        undisturbed: such a worker was up all the time.
    """

    rescued: float
    resumed: float | None
    possible: float
    undisturbed: bool


def one_at_a_time(evidence: Evidence, fleet: Fleet) -> Iterator[str]:
    """No attempt begins before the one before it has ended, unless that one's process had been stopped by SIGSTOP."""
    pauses = defaultdict(list)
    for pid, window in (pause for member in fleet.workers for pause in member.pauses):
        pauses[pid].append(window)
    begun = Counter((note.task, note.epoch) for note in evidence.notes if note.event == "begin")
    yield from (
        f"attempt {epoch} of {task_id} began {times} times" for (task_id, epoch), times in begun.items() if times > 1
    )
    for task_id, attempts in _by_task(evidence, fleet).items():
        epochs = sorted(attempts)
        for earlier, later in pairwise(epochs):
            before, after = attempts[earlier], attempts[later]
            stopped = any(before.begin <= w.end and w.begin <= after.begin for w in pauses[before.pid])
            if before.end > after.begin and not stopped:
                yield f"attempt {later} of {task_id} began {before.end - after.begin:.2f} s before {earlier} ended"
        if task_id in evidence.tasks and epochs[-1] > evidence.tasks[task_id]["epoch"]:
            yield f"attempt {epochs[-1]} of {task_id} ran and is not recorded"


def recoveries(evidence: Evidence, fleet: Fleet, downs: list[Window], lease: float) -> list[Recovery]:
    """How each task of each killed worker came back."""
    begins = {(note.task, note.epoch): note.at for note in evidence.notes if note.event == "begin"}
    found = []
    for pid, killed in (kill for member in fleet.workers for kill in member.kills):
        for task_id, epoch, rescued in _lost_with(pid, killed, evidence):
            trusted = min(_trusted_since(member, rescued, downs, lease) for member in fleet.workers)
            again = begins.get((task_id, epoch + 1))
            found.append(
                Recovery(
                    rescued - killed,
                    None if again is None else again - killed,
                    min(rescued, max(killed + lease, trusted)) - killed,
                    trusted <= killed,
                )
            )
    return found


def slow_rescues(found: list[Recovery], lease: float) -> Iterator[str]:
    """A task is back in the queue one round of the rescue after it can be, at the latest."""
    for recovery in found:
        late = recovery.rescued - recovery.possible - rescue_pause(lease)
        if late > SLACK_SECONDS:
            yield f"a killed worker's task was rescued {late:.1f} s too late, {recovery.rescued:.1f} s after the kill"


def rescue_pause(lease: float) -> float:
    """Seconds between two rounds of the rescue."""
    return min(INTERVAL_SECONDS, lease)


def _trusted_since(member: Member, until: float, downs: list[Window], lease: float) -> float:
    """Since when a worker had been up for a lease, without a break until then; for ever in the future if it was not."""
    breaks = [w for w in (*member.downs, *(w for _, w in member.pauses), *downs) if w.begin <= until]
    return max(window.end for window in breaks) + lease


def _lost_with(pid: int, killed: float, evidence: Evidence) -> Iterator[tuple[str, int, float]]:
    """The attempts that a killed worker held: task, epoch, and when they were rescued."""
    for (task_id, epoch), attempt in evidence.attempts.items():
        worker = evidence.workers.get(attempt["worker_id"])
        # A number may come again: it is the process that had been there before the kill.
        is_it = worker is not None and worker["pid"] == pid and worker["started_at"] < killed < attempt["at"]
        if is_it and attempt["ended"] == "lost":
            yield task_id, epoch, attempt["at"]


def _by_task(evidence: Evidence, fleet: Fleet) -> dict[str, dict[int, Attempt]]:
    kills = [kill for member in fleet.workers for kill in member.kills]
    attempts: dict[Key, Attempt] = {}
    for note in evidence.notes:
        if note.event == "begin":
            killed = min((at for pid, at in kills if pid == note.pid and at > note.at), default=FOREVER)
            attempts[note.task, note.epoch] = Attempt(note.pid, note.at, killed)
        elif note.event == "end":
            attempts[note.task, note.epoch].end = note.at
    by_task: defaultdict[str, dict[int, Attempt]] = defaultdict(dict)
    for (task_id, epoch), attempt in attempts.items():
        by_task[task_id][epoch] = attempt
    return by_task
