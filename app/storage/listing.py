"""Which tasks an operator means, and how they are found: newest first, page by page, by an index.

A task's id begins with the time of its creation, so that the primary key gives the newest first and bounds a time.
Where a filter names states, each is looked for by itself: live tasks, those that wait for answers and those that ended
badly have indexes of their own. Only tasks that completed are read through, from the newest down, where they are asked
for without any bound on their times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    Uuid,
    any_,
    bindparam,
    cast,
    column,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    table,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, asyncpg

from app.domain.task import TERMINAL, Status
from app.storage.schema import SCHEMA, task_attempts, task_outcomes, tasks

CLOCKS = timedelta(minutes=10)
"""How far the clock of a process that makes ids may be from the database's, for times to bound ids."""

t = tasks.c


class Activity(StrEnum):
    """What a task does, as `task_overview` calls it."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    STOPPING = "stopping"
    WAITING = "waiting for answers"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Tasks for which all of this is true; what is left out or empty is true of any.

    Attributes:
        error: in the status message, in the error that the client was told, or in that of an attempt; capitals or not.
        created_since, created_before, finished_since, finished_before: by the database's clock, with a time zone.
    """

    ids: tuple[UUID, ...] = ()
    status: tuple[Status, ...] = ()
    activity: tuple[Activity, ...] = ()
    tools: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    created_since: datetime | None = None
    created_before: datetime | None = None
    finished_since: datetime | None = None
    finished_before: datetime | None = None
    error: str | None = None

    def __bool__(self) -> bool:
        """Whether it leaves any task out."""
        return self != TaskFilter()

    def within(self, states: Collection[Status]) -> TaskFilter | None:
        """The same, of these states only; None where it names none of them."""
        wanted = tuple(s for s in self.status or Status if s in states)
        return replace(self, status=wanted) if wanted else None


INDEXED = frozenset({Status.INPUT_REQUIRED, Status.FAILED, Status.CANCELLED})
"""The states whose tasks the index tasks_by_status holds."""

Statement = tuple[str, list[object]]
"""The text of a statement for asyncpg, and its arguments."""

_OVERVIEW = table("task_overview", column("task_id"), schema=SCHEMA)
_DIALECT = asyncpg.dialect()  # type: ignore[no-untyped-call]

_ACTIVITIES: dict[Activity, tuple[ColumnElement[bool], ...]] = {
    Activity.QUEUED: (t.ready_at <= func.now(),),
    Activity.SCHEDULED: (t.ready_at > func.now(),),
    Activity.RUNNING: (t.worker_id.is_not(None), t.cancel_requested_at.is_(None)),
    Activity.STOPPING: (t.worker_id.is_not(None), t.cancel_requested_at.is_not(None)),
}


def page(which: TaskFilter, columns: Sequence[str], limit: int, after: UUID | None = None) -> Statement:
    """A page of the overview, newest first.

    Args:
        columns: of the view.
        after: the last task of the page before.
    """
    found = _newest(which, limit, after).cte("page").prefix_with("MATERIALIZED")
    shown: list[ColumnElement[Any]] = [column(name, _selectable=_OVERVIEW) for name in columns]
    joined = found.join(_OVERVIEW, _OVERVIEW.c.task_id == found.c.task_id)
    query: Select[*tuple[Any, ...]] = select(*shown)
    return _compiled(query.select_from(joined).order_by(found.c.task_id.desc()))


def ids(which: TaskFilter, limit: int, after: UUID | None = None) -> Statement:
    """The ids alone, newest first."""
    return _compiled(_newest(which, limit, after))


def count(which: TaskFilter, at_most: int) -> Statement:
    """How many there are, counted no further than this."""
    pieces = [piece.limit(at_most) for piece in _pieces(which, None)]
    found = union_all(*(piece.subquery().select() for piece in pieces)).limit(at_most).subquery()
    return _compiled(select(func.count().label("found")).select_from(found))


def _newest(which: TaskFilter, limit: int, after: UUID | None) -> Select[Any]:
    pieces = [_sorted(piece).limit(limit) for piece in _pieces(which, after)]
    if len(pieces) == 1:
        return pieces[0]
    found = union_all(*(piece.subquery().select() for piece in pieces)).subquery()
    return _sorted(select(found.c.task_id)).limit(limit)


def _sorted(query: Select[Any]) -> Select[Any]:
    (task_id,) = query.selected_columns
    return query.order_by(task_id.desc())


def _pieces(which: TaskFilter, after: UUID | None) -> Iterator[Select[Any]]:
    """Queries for the ids of disjoint sets of tasks, each with an index to find it by."""
    common = list(_conditions(which))
    kinds = list(_kinds(which)) or [(None, (false(),))]
    if after is not None:
        common.append(t.task_id < literal(after, Uuid))
    for number, (status, more) in enumerate(kinds):
        piece = select(t.task_id).where(*common, *more)
        if status is not None:
            piece = piece.where(t.status == bindparam(f"status_{number}", status.value, literal_execute=True))
        if status is Status.WORKING:
            piece = piece.where(t.finished_at.is_(None))
        # Sorted apart, or the primary key would be read through for the order, over all that have ended.
        if not which.ids and (status is Status.WORKING or (which.finished_since and status not in INDEXED)):
            apart = piece.cte(f"found_{number}").prefix_with("MATERIALIZED")
            piece = select(apart.c.task_id)
        yield piece


def _kinds(which: TaskFilter) -> Iterator[tuple[Status | None, tuple[ColumnElement[bool], ...]]]:
    """The states and activities that are wanted, a task in one of them at most."""
    if not which.status and not which.activity:
        yield None, ()
        return
    statuses, activities = which.status or tuple(Status), which.activity or tuple(Activity)
    if Status.WORKING in statuses:
        working = [activity for activity in activities if activity in _ACTIVITIES]
        if len(working) == len(_ACTIVITIES):
            yield Status.WORKING, ()
        else:
            yield from ((Status.WORKING, _ACTIVITIES[activity]) for activity in working)
    if Status.INPUT_REQUIRED in statuses and Activity.WAITING in activities:
        yield Status.INPUT_REQUIRED, ()
    if Activity.ENDED in activities:
        yield from ((status, ()) for status in statuses if status in TERMINAL)


def _conditions(which: TaskFilter) -> Iterator[ColumnElement[bool]]:
    if which.ids:
        yield t.task_id == any_(literal(list(which.ids), ARRAY(Uuid)))
    if which.tools:
        yield t.tool == any_(literal(list(which.tools), ARRAY(Text)))
    if which.owners:
        yield t.owner == any_(literal(list(which.owners), ARRAY(Text)))
    yield from _times(which)
    if which.error is not None:
        yield or_(*_says(which.error))


def _times(which: TaskFilter) -> Iterator[ColumnElement[bool]]:
    if which.created_since is not None:
        yield t.created_at >= which.created_since
        yield t.task_id >= _id_at(which.created_since, -CLOCKS)
    if which.created_before is not None:
        yield t.created_at < which.created_before
        yield t.task_id < _id_at(which.created_before, CLOCKS)
    if which.finished_since is not None:
        yield t.finished_at >= which.finished_since
    if which.finished_before is not None:
        yield t.finished_at < which.finished_before
        yield t.task_id < _id_at(which.finished_before, CLOCKS)


def _id_at(moment: datetime, shift: timedelta) -> ColumnElement[UUID]:
    at: ColumnElement[UUID] = getattr(func, SCHEMA).task_id_at(moment + shift, type_=Uuid)
    return at


def _says(words: str) -> Iterator[ColumnElement[bool]]:
    wanted = func.lower(literal(words, Text))
    yield func.strpos(func.lower(t.status_message), wanted) > 0
    for child, text in ((task_outcomes, task_outcomes.c.error), (task_attempts, task_attempts.c.error)):
        says = func.strpos(func.lower(cast(text, Text)), wanted) > 0
        yield exists().where(child.c.task_id == t.task_id, says)


def _compiled(query: Select[*tuple[Any, ...]]) -> Statement:
    compiled = query.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    names: Sequence[str] = compiled.positiontup or ()
    return compiled.string, [compiled.params[name] for name in names]
