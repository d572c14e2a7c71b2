"""The log: structured lines on stderr, ours and those of the standard library's loggers alike.

Text from outside, such as a tool's name in a request, cannot forge a line or move the terminal's cursor, and the
password of a URL or a bearer token that ends up in a message, an error or a traceback is struck out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
from contextlib import nullcontext, suppress
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, Literal

import stamina.instrumentation
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_CONTROL_IN_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SECRET = re.compile(
    r"(\w://[^\s:/@]*:)[^\s\"]+(?=@)|(\bBearer\s+)[\w.~+/=-]+|(\bperdure_)[\w-]{43}\b|(\bey)[\w-]{10,}\.[\w-]+\.[\w-]*",
    re.IGNORECASE,
)
CACHED = True
"""Whether a logger that was used once stays as it is set up now: quicker, and of no use where it is set up anew."""

_QUIET = ("alembic", "asyncio")

_plain_lines: _Lines | None = None
"""Where whole lines of JSON can be written; None while lines are made for people, or nothing is set up."""


class _Lines(logging.StreamHandler[Any]):
    """Writes what is logged, and whole lines that come on the event loop all together when it has gone round: a system
    call for each would cost as much as a tenth of a request."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._together: list[str] = []

    def add(self, line: str) -> None:
        """Write this line soon: before anything that is logged later, and when the process ends at the latest."""
        self._together.append(line)
        if len(self._together) > 1:
            return
        try:
            asyncio.get_running_loop().call_soon(self.flush)
        except RuntimeError:  # a thread
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record of the standard library's, or structlog's."""
        self.flush()
        super().emit(record)

    def flush(self) -> None:
        """Write what waits. As with all handlers of the standard library, a log that cannot be written ends nothing."""
        with self.lock or nullcontext(), suppress(OSError, ValueError):
            together, self._together = self._together, []
            if together:
                self.stream.write("".join(together))
            self.stream.flush()


def configure(style: Literal["console", "json"] | None = None, level: str = "info") -> None:
    """Set the process's log up; a second call replaces what the first did.

    Args:
        style: how lines are written; None: for people on a terminal, else JSON.
        level: the least that is logged.
    """
    global _plain_lines
    handler = _Lines()
    style = style or ("console" if sys.stderr.isatty() else "json")
    handler.setFormatter(_formatter(style))
    _plain_lines = handler if style == "json" else None
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    stamina.instrumentation.set_on_retry_hooks([_log_retry])
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_common(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=CACHED,
    )


def line(logger: str, event: str, **fields: str | float | None) -> None:
    """Log what happens with every request and every attempt: one line at info, as structlog writes it as JSON, at a
    tenth of the cost.

    Args:
        logger: the module that logs.
        fields: numbers, and names that are not secret.
    """
    if not _logger(logger).isEnabledFor(logging.INFO):
        return
    if _plain_lines is None or logging.root.handlers != [_plain_lines]:  # someone else listens too
        structlog.get_logger(logger).info(event, **fields)
        return
    if bound := structlog.contextvars.get_contextvars():
        fields = bound | fields
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    form = _form(event, logger, *fields)
    _plain_lines.add(form % (*map(_json, fields.values()), _second(seconds), nanoseconds // 1000))


def flush() -> None:
    """Write what waits, before the process leaves at once. A signal's handler may do so: it waits for no other thread,
    and not for what this thread was writing when the signal came."""
    if _plain_lines is None or _plain_lines.lock is None or not _plain_lines.lock.acquire(blocking=False):
        return
    try:
        with suppress(RuntimeError):  # a buffer that is being written to cannot be entered again
            _plain_lines.flush()
    finally:
        _plain_lines.lock.release()


def _json(value: Any) -> str:
    if type(value) is str:
        return encode_basestring_ascii(value)
    return repr(value) if type(value) is float or type(value) is int else json.dumps(value)


_logger = lru_cache(maxsize=32)(logging.getLogger)


@lru_cache(maxsize=128)
def _form(event: str, logger: str, *names: str) -> str:
    """A line, as a format for the values of these fields and the time."""
    ours = f'"event": {_json(event)}, "logger": {_json(logger)}, "level": "info"'.replace("%", "%%")
    said = "".join(_json(name).replace("%", "%%") + ": %s, " for name in names)
    return f'{{{said}{ours}, "timestamp": "%s.%06dZ"}}\n'


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _log_retry(details: stamina.instrumentation.RetryDetails) -> None:
    """Say that something is tried again; what it was called with is nobody's business."""
    fault = type(details.caused_by).__name__
    structlog.get_logger(__name__).warning(
        "trying again", fault=fault, tries=details.retry_num, wait_seconds=details.wait_for
    )


def _common() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        structlog.processors.UnicodeDecoder(),
    ]


def _formatter(style: Literal["console", "json"]) -> logging.Formatter:
    drop_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if style == "json":
        processors: list[Processor] = [drop_meta, structlog.processors.JSONRenderer(default=repr), _strike_out]
    else:
        processors = [drop_meta, _escape, _console(), _strike_out]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_common(), processors=processors)


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
    return _SECRET.sub(lambda match: f"{match[match.lastindex or 0]}***", line)
