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
from app.cli.output import progress, say, show_json, show_table
from app.domain.lifecycle import LIVE
from app.domain.task import TERMINAL, Status, Task
from app.settings import Settings
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
        run: does it, a batch at a time.
        told: of one of the results the task's id, and what is said of it: names and values.
    """

    verb: str
    states: Collection[Status]
    run: Callable[[Operator, Which], AsyncIterator[list[Any]]]
    told: Callable[[Any], dict[str, Any]]


def _cancelled(task: Task) -> dict[str, Any]:
    return {"task_id": task.task_id, "result": "cancelled" if task.status.terminal else "stopping"}


def _retried(retried: Retried) -> dict[str, Any]:
    return {"task_id": retried.old, "result": "retried", "new_task_id": retried.new.task_id}


def _purged(task_id: UUID) -> dict[str, Any]:
    return {"task_id": task_id, "result": "purged"}


CANCEL = Action("Cancel", LIVE, Operator.cancel, _cancelled)
RETRY = Action("Retry", TERMINAL, Operator.retry, _retried)
PURGE = Action("Purge", TERMINAL, Operator.purge, _purged)


async def act(settings: Settings, action: Action, which: Which, *, yes: bool, as_json: bool) -> int:
    """Do it to these tasks: by ids at once, by a filter if `yes`, or if the user agrees.

    Returns:
        The exit code: 1 if there was no task to do it to.
    """
    async with bootstrap.operator(settings) as operator:
        if not isinstance(which, TaskFilter):
            return await _by_ids(operator, action, which, as_json)
        within = which.within(action.states)
        found = 0 if within is None else await operator.count(within, COUNTED)
        if within is None or not found:
            say("No task is like that, or none to which this could be done.")
            return 1
        if not yes and not await _agreed(operator, action, within, found, as_json):
            return 0
        return await _by_filter(operator, action, within, found, as_json)


async def _by_ids(operator: Operator, action: Action, ids: Sequence[UUID], as_json: bool) -> int:
    told = [action.told(item) async for batch in action.run(operator, ids) for item in batch]
    left = set(ids) - {line["task_id"] for line in told}
    known = {row.task_id: row.status for row in await operator.tasks(TaskFilter(ids=tuple(left)), limit=len(left) or 1)}
    done = len(told)
    told += [{"task_id": i, "result": f"left as it is: {known[i]}" if i in known else "unknown"} for i in sorted(left)]
    _tell(told, as_json)
    return 0 if done else 1


async def _by_filter(operator: Operator, action: Action, which: TaskFilter, found: int, as_json: bool) -> int:
    results: Counter[str] = Counter()
    with progress() as bar:
        going = bar.add_task(action.verb, total=found)
        async for batch in action.run(operator, which):
            told = [action.told(item) for item in batch]
            results.update(line["result"] for line in told)
            if as_json or not sys.stdout.isatty():
                _tell(told, as_json)
            bar.advance(going, len(batch))
    say(", ".join(f"{count} {result}" for result, count in results.items()) or "They have changed meanwhile.")
    return 0 if results else 1


async def _agreed(operator: Operator, action: Action, which: TaskFilter, found: int, as_json: bool) -> bool:
    """Show what would be done; ask, where there is somebody to ask."""
    sample = await operator.tasks(which, limit=SAMPLE)
    count = f"{found}" if found < COUNTED else f"{found} or more"
    if as_json:
        show_json({"would": action.verb.lower(), "tasks": found, "sample": sample})
    else:
        say(f"{action.verb} would be done to {count} {'task' if found == 1 else 'tasks'}, such as:")
        show_table(
            ("TASK", "TOOL", "OWNER", "STATUS", "MESSAGE"),
            [(row.task_id, row.tool, row.owner, row.status, row.status_message) for row in sample],
            elastic=("TOOL", "OWNER", "MESSAGE"),
        )
        if sys.stdin.isatty() and sys.stderr.isatty():
            return typer.confirm(f"{action.verb} {count}?", err=True)
    say("Nothing was done. Repeat it with --yes to do it.")
    return False


def _tell(told: list[dict[str, Any]], as_json: bool) -> None:
    if not as_json:
        show_table(("TASK", "RESULT", "NEW TASK"), [list(line.values()) for line in told])
        return
    for line in told:
        show_json(line)
