"""Every exception that Perdure raises on purpose.

    PerdureError
    ├── SettingsError            the environment holds a value that cannot be used
    ├── SchemaError              the database's schema is not the one this release knows
    ├── DeclarationError         a tool cannot be loaded as it is declared
    ├── ToolError                a tool says that it failed; the caller gets a result with isError
    ├── ProtocolError            a tool ends its task with a JSON-RPC error of its own
    ├── Refusal                  a request is answered with an error; `kind` says which
    ├── InsufficientScope        the caller was not granted what the request needs
    ├── InvalidArguments         the arguments of a call do not fit the tool's schema
    ├── UsageError               a tool used its context in a way that cannot be replayed
    ├── UnusableResult           what a tool returned cannot be stored or does not fit its schema
    ├── EmbeddedPostgresError    (app.embedded_pg) the PostgreSQL of our own cannot be started or stopped
    ├── StaleAttempt             the task is no longer this attempt's to write
    ├── KeyConflict              an idempotency key stands for another request
    └── StoreUnavailable         the database could not be reached in time

A message says what is wrong and what to do next. It never holds SQL, a path, an argument or a token.
"""

from __future__ import annotations

from enum import Enum
from typing import Any


class PerdureError(Exception):
    """Root of the tree."""


class SettingsError(PerdureError):
    """A setting cannot be used; the message names it and what it takes."""


class SchemaError(PerdureError):
    """The database's schema is not at the revision that this release needs; the message names the command."""


class DeclarationError(PerdureError):
    """A tool cannot be loaded; the message names the tool, its file and what to change."""


class ToolError(PerdureError):
    """Raised by a tool to say that it failed in a way that its caller should read.

    The task ends as `completed` with `isError: true` (Tasks, "Task Execution Errors").
    """


class ProtocolError(PerdureError):
    """Raised by a tool to end its task as `failed` with exactly this JSON-RPC error.

    Args:
        code: the JSON-RPC error code; application codes lie outside of -32768 to -32000.
        message: one sentence for the client.
        data: any JSON value, or None for no `data` member.

    Raises:
        TypeError: code or message is of another type, which JSON-RPC does not have there.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        if (isinstance(code, int), isinstance(code, bool), isinstance(message, str)) != (True, False, True):
            raise TypeError("ProtocolError takes an integer as code, and a text as message")
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ErrorKind(Enum):
    """What kind of answer a refused request gets; the protocol revision decides the number."""

    PARSE = "parse"
    INVALID_REQUEST = "invalid_request"
    METHOD_NOT_FOUND = "method_not_found"
    INVALID_PARAMS = "invalid_params"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    LIMIT = "limit"
    NOT_ACCEPTABLE = "not_acceptable"
    HEADER_MISMATCH = "header_mismatch"
    MISSING_CAPABILITY = "missing_capability"
    UNSUPPORTED_VERSION = "unsupported_version"


class Refusal(PerdureError):
    """A request that is answered with a JSON-RPC error.

    Args:
        kind: which error; `wire.revisions` knows its code.
        message: one sentence for the client.
        data: the error's `data` member, None for none.
    """

    def __init__(self, kind: ErrorKind, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.data = data


class InsufficientScope(PerdureError):
    """The caller may not do this.

    Args:
        scopes: all that it needs.
    """

    def __init__(self, scopes: tuple[str, ...]) -> None:
        super().__init__(f"This needs the scopes {' '.join(scopes)}")
        self.scopes = scopes


class InvalidArguments(PerdureError):
    """The arguments of a call do not fit the tool's input schema; the message names the field."""


class UsageError(PerdureError):
    """A tool used its context in a way that cannot be replayed; the message says which call, and what to do."""


class UnusableResult(PerdureError):
    """A tool returned something that cannot be stored, is too large, or does not fit its output schema."""


class StaleAttempt(PerdureError):
    """The task has moved on without this attempt: nothing was written, and nothing more may be."""


class KeyConflict(PerdureError):
    """An idempotency key was used before for a request with another body."""


class StoreUnavailable(PerdureError):
    """The database did not answer within the time that the store retries for."""
