"""What `perdure tasks` does to many tasks: shown first, done when that is agreed to, and told as it goes on."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import typer

from app import bootstrap
from app.cli.output import give_up_printing, progress, say, show_json, show_table
from app.domain.lifecycle import LIVE
from app.domain.task import TERMINAL, Status, Task
from app.settings import Settings
from app.storage.inspection import TaskRow
from app.storage.listing import TaskFilter
from app.storage.operator import Operator, Retried, Which

COUNTED = 1_000_000
SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Action:
    """Something that is done to tasks.

    Attributes:
        verb: what it is called, with a capital.
        states: what it is done to; other tasks are passed over.
        takes: the same in words.
        run: does it, a batch at a time.
        told: of one of the results the task's id, and what is said of it: names and values.
    """

    verb: str
    states: Collection[Status]
    takes: str
    run: Callable[[Operator, Which], AsyncIterator[list[Any]]]
    told: Callable[[Any], dict[str, Any]]


def _cancelled(task: Task) -> dict[str, Any]:
    return {"task_id": task.task_id, "result": "cancelled" if task.status.terminal else "stopping"}


def _retried(retried: Retried) -> dict[str, Any]:
    return {"task_id": retried.old, "result": "retried", "new_task_id": retried.new.task_id}


def _purged(task_id: UUID) -> dict[str, Any]:
    return {"task_id": task_id, "result": "purged"}


CANCEL = Action("Cancel", LIVE, "cancel takes tasks that have not ended", Operator.cancel, _cancelled)
RETRY = Action(
    "Retry",
    TERMINAL,
    "retry takes tasks that have ended, and of them those that failed unless --status says otherwise",
    Operator.retry,
    _retried,
)
PURGE = Action("Purge", TERMINAL, "purge takes only tasks that have ended", Operator.purge, _purged)


@dataclass(frozen=True, slots=True)
class Found:
    """What a filter means: how many tasks, counted no further than `COUNTED`, and the newest of them."""

    tasks: int
    sample: Sequence[TaskRow]


async def find(settings: Settings, action: Action, which: TaskFilter) -> Found:
    """Look what it would be done to."""
    async with bootstrap.operator(settings) as operator:
        found = await _count(operator, action, which)
        within = which.within(action.states)
        return Found(found, await operator.tasks(within, limit=SAMPLE) if within is not None and found else [])


def agreed(action: Action, found: Found, *, as_json: bool) -> bool:
    """Show what would be done; ask, where there is somebody to ask. No event loop may run: it would take the Ctrl-C.

    Raises:
        Exit: nothing is to be done; with 1 if there is nothing, with 130 after Ctrl-C.
    """
    if not found.tasks:
        raise typer.Exit(_none(action))
    count = f"{found.tasks}" if found.tasks < COUNTED else f"{found.tasks} or more"
    if as_json:
        show_json({"would": action.verb.lower(), "tasks": found.tasks, "sample": found.sample})
    else:
        say(f"{action.verb} would be done to {count} {'task' if found.tasks == 1 else 'tasks'}, such as:")
        show_table(
            ("TASK", "TOOL", "OWNER", "STATUS", "MESSAGE"),
            [(row.task_id, row.tool, row.owner, row.status, row.status_message) for row in found.sample],
            elastic=("TOOL", "OWNER", "MESSAGE"),
        )
        if sys.stdin.isatty() and sys.stderr.isatty():
            return _confirmed(f"{action.verb} {count}?")
    say("Nothing was done. Repeat it with --yes to do it.")
    return False


async def act(settings: Settings, action: Action, which: Which, *, as_json: bool) -> int:
    """Do it to these tasks, and tell what became of each, as long as somebody reads that.

    Returns:
        The exit code: 1 if there was no task to do it to, 2 if what was done could not be written.
    """
    async with bootstrap.operator(settings) as operator:
        if isinstance(which, TaskFilter):
            return await _by_filter(operator, action, which, as_json)
        return await _by_ids(operator, action, which, as_json)


async def _by_ids(operator: Operator, action: Action, ids: Sequence[UUID], as_json: bool) -> int:
    told = [action.told(item) async for batch in action.run(operator, ids) for item in batch]
    left = set(ids) - {line["task_id"] for line in told}
    known = {row.task_id: row.status for row in await operator.tasks(TaskFilter(ids=tuple(left)), limit=len(left) or 1)}
    done = len(told)
    told += [{"task_id": i, "result": f"left as it is: {known[i]}" if i in known else "unknown"} for i in sorted(left)]
    unwritten = _tell(told, as_json)
    return unwritten or (0 if done else 1)


async def _by_filter(operator: Operator, action: Action, which: TaskFilter, as_json: bool) -> int:
    found = await _count(operator, action, which)
    if not found:
        return _none(action)
    results: Counter[str] = Counter()
    unwritten = 0
    try:
        with progress() as bar:
            going = bar.add_task(action.verb, total=found)
            async for batch in action.run(operator, which):
                told = [action.told(item) for item in batch]
                results.update(line["result"] for line in told)
                if as_json or not sys.stdout.isatty():
                    unwritten |= _tell(told, as_json)
                bar.advance(going, len(batch))
    except BaseException:
        say(f"Broken off: {_summed(results) or 'nothing was done'}, of {found}.")
        raise
    say(_summed(results) or "They have changed meanwhile.")
    return unwritten or (0 if results else 1)


async def _count(operator: Operator, action: Action, which: TaskFilter) -> int:
    within = which.within(action.states)
    return 0 if within is None else await operator.count(within, COUNTED)


def _none(action: Action) -> int:
    say(f"No task is like that; {action.takes}.")
    return 1


def _confirmed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as left:
        say("\nNothing was done.")
        raise typer.Exit(130 if isinstance(left.__context__, KeyboardInterrupt) else 1) from None


def _summed(results: Counter[str]) -> str:
    return ", ".join(f"{count} {result}" for result, count in results.items())


def _tell(told: list[dict[str, Any]], as_json: bool) -> int:
    """Print it; where that fails go on without. Returns 2 if it could not be written, though somebody wants it."""
    try:
        _print(told, as_json)
        sys.stdout.flush()
    except OSError as fault:
        return 2 if give_up_printing(fault) else 0
    return 0


def _print(told: list[dict[str, Any]], as_json: bool) -> None:
    if not as_json:
        show_table(("TASK", "RESULT", "NEW TASK"), [list(line.values()) for line in told])
        return
    for line in told:
        show_json(line)
