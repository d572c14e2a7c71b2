"""The options by which operators say which tasks they mean."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, TypeVar
from uuid import UUID

import typer

from app.domain.duration import parse_duration
from app.domain.task import Status
from app.storage.listing import Activity, TaskFilter

TIME = "a duration before now, such as 90s, 2h or 7d, or a time such as 2026-12-31T18:00 (UTC unless it says otherwise)"

Kind = TypeVar("Kind", bound=StrEnum)


class Doing(StrEnum):
    """The activities, each as one word."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    STOPPING = "stopping"
    WAITING = "waiting"
    ENDED = "ended"


def read_time(text: str) -> datetime:
    """A time, written as `TIME` says.

    Raises:
        BadParameter: it is neither.
    """
    try:
        return datetime.now(UTC) - timedelta(milliseconds=parse_duration(text, zero=True))
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"a time is {TIME}") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def read_id(text: str) -> UUID:
    """A task's id.

    Raises:
        BadParameter: it is none.
    """
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter("a task's id looks like 01920000-0000-7000-8000-000000000000") from None


def _word_option(name: str, text: str, kind: type[Kind]) -> Any:
    def read(word: str) -> Kind:
        try:
            return kind(word)
        except ValueError:
            raise typer.BadParameter(f"it is one of {', '.join(kind)}") from None

    says = f"{text}: {', '.join(kind)}. {_MANY}"
    return Annotated[list[kind], typer.Option(name, metavar="WORD", parser=read, help=says)]  # type: ignore[valid-type]


def _time_option(name: str, text: str) -> Any:
    return Annotated[datetime | None, typer.Option(name, metavar="TIME", parser=read_time, help=text)]


_MANY = "Repeatable."
_OPTIONS: dict[str, Any] = {
    "status": _word_option("--status", "Of this status", Status),
    "activity": _word_option("--activity", "What they do now", Doing),
    "tools": Annotated[list[str], typer.Option("--tool", metavar="NAME", help=f"Of this tool. {_MANY}")],
    "owners": Annotated[list[str], typer.Option("--owner", metavar="NAME", help=f"Of this principal. {_MANY}")],
    "created_since": _time_option("--since", f"Created since: {TIME}."),
    "created_before": _time_option("--before", "Created before."),
    "finished_since": _time_option("--finished-since", "Ended since."),
    "finished_before": _time_option("--finished-before", "Ended before."),
    "error": Annotated[
        str | None,
        typer.Option("--error", metavar="TEXT", help="Words of the status message or of an error, in capitals or not."),
    ],
}


def _refuse_empty(texts: dict[str, list[str | None]]) -> None:
    """A shell's variable that is not set leaves an empty text, which would be true of more tasks than were meant."""
    for option, given in texts.items():
        if any(text is not None and not text.strip() for text in given):
            raise typer.BadParameter(f"{option} is empty")


def with_filter(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options; it gets what they say as its argument `which`."""
    own = inspect.signature(command, eval_str=True).parameters

    def filtered(**given: Any) -> None:
        values: dict[str, Any] = {name: given.pop(name) for name in _OPTIONS}
        _refuse_empty({"--tool": values["tools"], "--owner": values["owners"], "--error": [values["error"]]})
        values["activity"] = [Activity[doing.name] for doing in values["activity"]]
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        command(which=TaskFilter(**values), **given)

    kind = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(name, kind, annotation=annotation, default=None if "None" in str(annotation) else [])
        for name, annotation in _OPTIONS.items()
    ]
    kept = [parameter.replace(kind=kind) for name, parameter in own.items() if name != "which"]
    filtered.__signature__ = inspect.Signature([*kept, *options])  # type: ignore[attr-defined]
    filtered.__annotations__ = {parameter.name: parameter.annotation for parameter in [*kept, *options]}
    filtered.__name__, filtered.__doc__ = command.__name__, command.__doc__
    return filtered
