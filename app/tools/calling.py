"""What calling a tool's function has in common, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def plainly(fn: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a plain function in a thread, so that its waiter hears of every exception."""
    try:
        return fn(**arguments)
    except StopIteration as error:  # a future cannot carry it: its waiter would wait for ever
        raise RuntimeError("the tool raised StopIteration") from error


def alone(error: BaseException) -> BaseException:
    """What a TaskGroup wrapped, where it is the only one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
