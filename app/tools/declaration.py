"""What `@tool` makes of a function."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, overload

from typing_extensions import ParamSpec, TypeVar

from app.domain.retry import Retry
from app.domain.task import Json
from app.errors import DeclarationError
from app.tools.docstrings import read_docstring
from app.tools.options import Duration, Starts, TaskMode, ToolOptions, read_options
from app.tools.results import Outputs
from app.tools.schemas import Unresolved
from app.tools.signature import Inputs, is_async

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

NO_RETRY = Retry()

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, eq=False)
class Tool(Generic[P, R]):
    """A function that clients can call; called as it is, it is that function.

    Attributes:
        where: file and line of the function, for errors that its author reads.
        is_async: whether the function is awaited; otherwise it runs in a thread.
        local_names: what annotations can name beside the module's globals.
        input_schema: the one that the author has written; None for what the parameters make.
        retries: which failures of an attempt lead to another one.
    """

    name: str
    title: str | None
    description: str
    options: ToolOptions
    fn: Callable[P, R]
    where: str
    is_async: bool
    local_names: Mapping[str, Any] | None = field(default=None, repr=False)
    input_schema: dict[str, Any] | None = field(default=None, repr=False)
    retries: Retry = NO_RETRY

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.fn(*args, **kwargs)

    @cached_property
    def definition(self) -> dict[str, Any]:
        """The tool as clients see it (core, "Tool").

        Raises:
            DeclarationError: the function's signature cannot be one of a tool.
        """
        shown = {"name": self.name, "title": self.title, "description": self.description}
        schemas = {"inputSchema": self._inputs.schema, "outputSchema": self._outputs.schema}
        return {key: value for key, value in (shown | schemas).items() if value is not None}

    @property
    def takes_context(self) -> str | None:
        """The name of the parameter that gets the context, None for none."""
        return self._inputs.context

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make the arguments of a call into the function's, without the context; see `Inputs.bind`."""
        return self._inputs.bind(arguments)

    def result(self, value: Any) -> Json:
        """Make what the function returned into a CallToolResult; see `Outputs.result`."""
        return self._outputs.result(value)

    def refused(self, reason: object) -> DeclarationError:
        """An error that names the tool and where it is."""
        return _refused(self.name, self.where, reason)

    @cached_property
    def _inputs(self) -> Inputs:
        try:
            return Inputs(self.fn, self.local_names, self.input_schema)
        except (Unresolved, ValueError) as error:
            raise self.refused(error) from error

    @cached_property
    def _outputs(self) -> Outputs:
        try:
            return Outputs(self._inputs.returns)
        except (Unresolved, ValueError) as error:
            raise self.refused(error) from error


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    input_schema: dict[str, Any] | None = None,
    task: TaskMode = "auto",
    starts: Starts = "task",
    inline_budget: Duration | None = None,
    priority: int = 1,
    timeout: Duration | None = None,
    losses: int = 3,
    retries: Retry = NO_RETRY,
    ttl: Duration | None = None,
    retention: Duration | None = None,
    answer_within: Duration = "7d",
    poll_interval: Duration | None = None,
    scopes: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    input_schema: dict[str, Any] | None = None,
    task: TaskMode = "auto",
    starts: Starts = "task",
    inline_budget: Duration | None = None,
    priority: int = 1,
    timeout: Duration | None = None,
    losses: int = 3,
    retries: Retry = NO_RETRY,
    ttl: Duration | None = None,
    retention: Duration | None = None,
    answer_within: Duration = "7d",
    poll_interval: Duration | None = None,
    scopes: Sequence[str] = (),
) -> Any:
    """Make a tool of a function, as `@tool` or `@tool(…)`. Durations are `"90s"`, `"24h"` or timedeltas.

    Args:
        name: what clients call it; the function's name by default.
        title: a name for people.
        description: what it does; the first paragraph of the docstring by default.
        input_schema: what clients are shown, and arguments are held to, in place of what the parameters make.
        task: who gets a task: nobody ("never"), callers that can use one ("auto"), or only such callers ("required").
        starts: how a call begins: as a "task", or on the "request", where the tool can ask first, until it calls
            `ctx.detach()`.
        inline_budget: how long a caller that can use a task waits for the result itself before it gets the task, up to
            60s; None for not at all. For task="auto" only.
        priority: 0 goes first, 3 last.
        timeout: how long one attempt may run; None for as long as it takes.
        losses: how many workers a task may lose before it fails.
        retries: which failures of an attempt lead to another one, and when; none by default.
        ttl: lifetime of a task from its creation, also while it is live; None for no limit.
        retention: how long an ended task can still be read; by default what PERDURE_RETENTION says, 24h.
        answer_within: how long a question waits before the task fails.
        poll_interval: how often clients are to ask; None lets it grow with the task's age.
        scopes: what the authorization server must have granted whoever calls it.

    Raises:
        DeclarationError: the function cannot be a tool as it is declared.
    """
    durations = {
        "inline_budget": inline_budget,
        "timeout": timeout,
        "ttl": ttl,
        "retention": retention,
        "answer_within": answer_within,
        "poll_interval": poll_interval,
    }
    frame = sys._getframe(1)
    local_names = None if frame.f_locals is frame.f_globals else dict(frame.f_locals)

    def declare(fn: Callable[..., Any]) -> Tool:
        called, where = name if name is not None else getattr(fn, "__name__", type(fn).__name__), _where(fn)
        try:
            _check_function(fn)
            if task == "never" and retries.times:
                raise ValueError('task="never" has no retries: it runs once, for the caller that waits')
            options = read_options(
                durations, task=task, starts=starts, priority=priority, losses=losses, scopes=tuple(scopes)
            )
            made = Tool(
                _checked_name(called),
                title,
                _description(description, fn),
                options,
                fn,
                where,
                is_async(fn),
                local_names,
                input_schema,
                retries,
            )
        except ValueError as error:
            raise _refused(called, where, error) from error
        _read_signature(made)
        return made

    return declare if fn is None else declare(fn)


def _refused(name: str, where: str, reason: object) -> DeclarationError:
    return DeclarationError(f"Tool {name!r} in {where}: {reason}")


def _where(fn: Any) -> str:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else str(getattr(fn, "__module__", "?"))


def _check_function(fn: Any) -> None:
    if not inspect.isfunction(fn):
        raise ValueError("@tool goes on a `def` or an `async def`")
    inner = inspect.unwrap(fn)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ValueError("a tool returns its result, it cannot yield")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("the name must be 1 to 128 of the characters A-Z a-z 0-9 _ - .; give another with name=…")
    return name


def _description(given: str | None, fn: Callable[..., Any]) -> str:
    description = (given or "").strip() or read_docstring(fn.__doc__)[0]
    if not description:
        raise ValueError("it has no description: write a docstring, or give description=…")
    return description


def _read_signature(made: Tool) -> None:
    """Refuse a wrong signature where it is declared; what it names may still be defined further down in the module."""
    try:
        _ = made.definition
    except DeclarationError as error:
        if not isinstance(error.__cause__, Unresolved):
            raise
