"""Notifications that belong to a request and go before its response (core, "Progress")."""

from __future__ import annotations

from typing import Any

from app.domain.task import Json
from app.wire.envelope import dumps

_EXACT = 2**53  # beyond it, neighbouring integers are the same double


def progress_notification(
    token: str | int, progress: float, total: float | None = None, message: str | None = None
) -> Json:
    """A whole `notifications/progress`, with the token that the request gave.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    params: dict[str, Any] = {"progressToken": token, "progress": _number(progress)}
    if total is not None:
        params["total"] = _number(total)
    if message is not None:
        params["message"] = message
    return dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def _number(value: float) -> float:
    """An integer as such: some clients show `3.0` as it is written."""
    return int(value) if abs(value) < _EXACT and value == int(value) else value
