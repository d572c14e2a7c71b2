"""What a tool decides about its calls beside what it does: as its author writes it, and as the catalogue holds it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.domain.duration import LONGEST, parse_duration
from app.domain.scopes import SCOPE
from app.domain.task import Policy
from app.tools.validation import located

Duration = str | timedelta
TaskMode = Literal["never", "auto", "required"]
Starts = Literal["task", "request"]

_LONGEST = {"poll_interval": "1d", "inline_budget": "60s"}


class ToolOptions(BaseModel):
    """A tool's decisions; durations are milliseconds, see `Policy`.

    Attributes:
        task: who gets a task: nobody (`never`), callers that can use one (`auto`), or only such callers (`required`).
        starts: how a call begins: as a task, or on the request until the tool calls `ctx.detach()`.
        inline_budget_ms: how long a caller that can use a task waits for the result itself; None for not at all.
        scopes: what a caller must have been granted.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    task: TaskMode = "auto"
    starts: Starts = "task"
    inline_budget_ms: int | None = Field(None, gt=0)
    scopes: tuple[Annotated[str, Field(pattern=f"^{SCOPE.pattern}$")], ...] = Field((), max_length=20)
    priority: int = Field(1, ge=0, le=3)
    retention_ms: int = Field(86_400_000, ge=0)
    answer_within_ms: int = Field(604_800_000, gt=0)
    losses: int = Field(3, ge=0, le=100)
    timeout_ms: int | None = Field(None, gt=0)
    ttl_ms: int | None = Field(None, gt=0)
    poll_interval_ms: int | None = Field(None, gt=0)

    def to_policy(self) -> Policy:
        """The policy that each of the tool's tasks is created with."""
        return Policy(**self.model_dump(exclude={"task", "starts", "inline_budget_ms", "scopes"}))


def read_options(durations: dict[str, Duration | None], **others: Any) -> ToolOptions:
    """Read what an author wrote. A duration of None is left to its default.

    Raises:
        ValueError: with what is wrong, by the name of the argument.
    """
    given = {f"{key}_ms": _milliseconds(key, value) for key, value in durations.items() if value is not None}
    try:
        options = ToolOptions.model_validate(others | given)
    except ValidationError as error:
        raise ValueError("; ".join(located(e["loc"], e["msg"]) for e in error.errors())) from error
    _check_answering(options)
    return options


def _check_answering(options: ToolOptions) -> None:
    """Refuse ways of answering a call that contradict each other."""
    on_request, budget = options.starts == "request", options.inline_budget_ms is not None
    if options.task == "never" and (on_request or budget):
        option = "starts" if on_request else "inline_budget"
        raise ValueError(f'{option}: a tool with task="never" always answers on the request, leave it out')
    if options.task == "never":
        for option in options.model_dump(exclude={"task", "scopes"}, exclude_defaults=True):
            name = option.removesuffix("_ms")
            raise ValueError(f'{name}: it is about tasks, and a tool with task="never" has none; leave it out')
    if on_request and budget:
        raise ValueError('inline_budget: a tool with starts="request" answers on the request anyway, leave it out')
    if options.task == "required" and budget:
        raise ValueError('inline_budget: a tool with task="required" always answers with a task, leave it out')


def _milliseconds(key: str, value: Duration) -> int:
    try:
        return parse_duration(value, zero=key == "retention", longest=_LONGEST.get(key, LONGEST))
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error
