"""Whether a task ever ran twice at once, and how soon the tasks of a killed worker ran again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from app.worker.maintenance.rescue import INTERVAL_SECONDS
from tests.faults.evidence import Evidence, Key
from tests.faults.processes import Fleet, Member
from tests.faults.windows import FOREVER, Window, any_meets

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
    """A task that a killed worker had held.

    Attributes:
        rescued: seconds from the kill until it was back in the queue.
        resumed: seconds until it ran again; None where it did not, since it was cancelled or had lost too many.
        undisturbed: another worker was up and trusted all the time, and so was the database.
    """

    rescued: float
    resumed: float | None
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
    for member in fleet.workers:
        for pid, killed in member.kills:
            calm = _undisturbed(member, killed, fleet, downs, lease)
            for (task_id, epoch), attempt in evidence.attempts.items():
                worker = evidence.workers.get(attempt["worker_id"])
                if (
                    attempt["ended"] == "lost"
                    and worker is not None
                    and worker["pid"] == pid
                    and attempt["at"] > killed
                ):
                    again = begins.get((task_id, epoch + 1))
                    resumed = None if again is None else again - killed
                    found.append(Recovery(attempt["at"] - killed, resumed, calm))
    return found


def bound(lease: float) -> float:
    """Seconds within which a rescue must have happened: the lease and the pause between two rounds of the rescue."""
    return lease + min(INTERVAL_SECONDS, lease)


def slow_rescues(found: list[Recovery], lease: float) -> Iterator[str]:
    """A task is back in the queue within the bound, where a rescuer was up all the time."""
    for recovery in found:
        if recovery.undisturbed and recovery.rescued > bound(lease) + SLACK_SECONDS:
            yield f"a task of a killed worker was rescued only after {recovery.rescued:.1f} s"


def _undisturbed(killed: Member, at: float, fleet: Fleet, downs: list[Window], lease: float) -> bool:
    """Whether another worker could believe in the silence of this one all the time."""
    since, until = at - lease, at + bound(lease) + SLACK_SECONDS
    return not any_meets(downs, since, until) and any(
        other is not killed
        and not any_meets((window for _, window in other.pauses), since, until)
        and not other.was_down(since, until)
        for other in fleet.workers
    )


def _lost_with(pid: int, killed: float, evidence: Evidence) -> Iterator[tuple[str, int, float]]:
    """The attempts that a killed worker held: task, epoch, and when they were rescued."""
    for (task_id, epoch), attempt in evidence.attempts.items():
        worker = evidence.workers.get(attempt["worker_id"])
        if attempt["ended"] == "lost" and worker is not None and worker["pid"] == pid and attempt["at"] > killed:
            yield task_id, epoch, attempt["at"]


def _by_task(evidence: Evidence, fleet: Fleet) -> dict[str, dict[int, Attempt]]:
    kills = {pid: at for member in fleet.workers for pid, at in member.kills}
    attempts: dict[Key, Attempt] = {}
    for note in evidence.notes:
        if note.event == "begin":
            attempts[note.task, note.epoch] = Attempt(note.pid, note.at, kills.get(note.pid, FOREVER))
        elif note.event == "end":
            attempts[note.task, note.epoch].end = note.at
    by_task: defaultdict[str, dict[int, Attempt]] = defaultdict(dict)
    for (task_id, epoch), attempt in attempts.items():
        by_task[task_id][epoch] = attempt
    return by_task
