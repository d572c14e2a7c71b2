"""The log: structured lines on stderr, ours and those of the standard library's loggers alike.

Text from outside, such as a tool's name in a request, cannot forge a line or move the terminal's cursor, and the
password of a URL or a bearer token that ends up in a message, an error or a traceback is struck out.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Literal, TextIO

import stamina.instrumentation
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_CONTROL_IN_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SECRET = re.compile(r"(\w://[^\s:/@]*:)[^\s\"]+(?=@)|(\bBearer\s+)[\w.~+/=-]+", re.IGNORECASE)
_QUIET = ("alembic", "asyncio")


def configure(style: Literal["console", "json"] | None = None, level: str = "info") -> None:
    """Set the process's log up; a second call replaces what the first did.

    Args:
        style: how lines are written; None: for people on a terminal, else JSON.
        level: the least that is logged.
    """
    style = style or ("console" if sys.stderr.isatty() else "json")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(style))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    stamina.instrumentation.set_on_retry_hooks([_log_retry])
    # Ours do not go through the standard library: there is a line for every request, and it costs five times as much.
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, _name, *_common(), *_rendering(style)],
        logger_factory=partial(_Lines, sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=True,
    )


class _Lines:
    """Writes the lines of one logger. One that cannot be written is nobody's fault who logs."""

    _writing = Lock()

    def __init__(self, stream: TextIO, name: str | None = None) -> None:
        self._stream, self.name = stream, name

    def msg(self, line: str) -> None:
        """Write a line."""
        with suppress(OSError, ValueError), self._writing:
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = exception = msg


def _name(logger: WrappedLogger, _: str, event: EventDict) -> EventDict:
    event["logger"] = logger.name
    return event


def _log_retry(details: stamina.instrumentation.RetryDetails) -> None:
    """Say that something is tried again; what it was called with is nobody's business."""
    fault = type(details.caused_by).__name__
    structlog.get_logger(__name__).warning(
        "trying again", fault=fault, tries=details.retry_num, wait_seconds=details.wait_for
    )


def _common() -> list[Processor]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        structlog.processors.UnicodeDecoder(),
    ]


def _rendering(style: Literal["console", "json"]) -> list[Processor]:
    if style == "json":
        return [structlog.processors.JSONRenderer(serializer=_serialize), _strike_out]
    return [_escape, _console(), _strike_out]


def _serialize(event: EventDict, **_: Any) -> str:
    return _json.encode(event)


_json = json.JSONEncoder(default=repr)


def _formatter(style: Literal["console", "json"]) -> logging.Formatter:
    """For the lines of libraries."""
    drop_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        *_common(),
    ]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=[drop_meta, *_rendering(style)])


def _console() -> structlog.dev.ConsoleRenderer:
    """Tracebacks without the variables of their frames: those are arguments and passwords."""
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.RichTracebackFormatter(show_locals=False)
    )


def _escape(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """For the console; JSON escapes by itself."""
    return {
        key: (_CONTROL_IN_LINES if key in ("exception", "stack") else _CONTROL).sub(_escaped, value)
        if isinstance(value, str)
        else value
        for key, value in event.items()
    }


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")


def _strike_out(_: WrappedLogger, __: str, rendered: Any) -> str:
    line: str = rendered
    if "://" not in line and "bearer" not in line.lower():
        return line
    return _SECRET.sub(lambda match: f"{match[1] or match[2]}***", line)
