"""The `requestState` that a client carries from a question on the request to its retry.

It is the client's to keep and so nothing to trust: it names a task and a round, and is authenticated together with
the principal, the tool and the arguments that it was given for (core, "Multi Round-Trip Requests", "Server
Requirements"). Whoever presents it for anything else is refused as if it were made up.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.domain.task import REQUEST_STATE_MS, Task
from app.errors import ErrorKind, Refusal

_HEAD = struct.Struct(">16sIQ")
"""The task's id, the number of the attempt that asked, and when the state lapses, in seconds since 1970."""

_MAC = hashlib.sha256


@dataclass(frozen=True, slots=True)
class Origin:
    """The request that a state belongs to."""

    owner: str
    tool: str
    arguments: dict[str, Any]

    def digest(self) -> bytes:
        """Differs for every other principal, tool or arguments; the order of members does not count."""
        return _MAC(json.dumps([self.owner, self.tool, self.arguments], sort_keys=True).encode()).digest()


class RequestStates:
    """Seals and opens states.

    Args:
        keys: secrets; the first one seals, all of them open, so that a key can be replaced.
        clock: seconds since 1970.
    """

    def __init__(self, keys: Sequence[bytes], *, clock: Callable[[], float] = time.time) -> None:
        self._keys = tuple(_MAC(key).digest() for key in keys)
        self._clock = clock

    def seal(self, task: Task, origin: Origin) -> str:
        """The state for a task's current questions; it lasts as long as they wait for the retry."""
        head = _HEAD.pack(task.task_id.bytes, task.epoch, int(self._clock()) + REQUEST_STATE_MS // 1000)
        return base64.urlsafe_b64encode(head + _mac(self._keys[0], head, origin)).decode()

    def open(self, text: Any, origin: Origin) -> UUID:
        """The task that a state stands for.

        Raises:
            Refusal: INVALID_PARAMS, if it is none that was sealed for this request, or has lapsed.
        """
        if not isinstance(text, str):
            raise _refused("must be a string")
        head, mac = _split(text)
        if not any(hmac.compare_digest(mac, _mac(key, head, origin)) for key in self._keys):
            raise _refused("is none that was given for this request")
        task_id, _, lapses = _HEAD.unpack(head)
        if lapses <= self._clock():
            raise lapsed()
        return UUID(bytes=task_id)


def lapsed() -> Refusal:
    """The refusal of a state whose time is over."""
    return _refused("has expired: call the tool again without it")


def _split(text: str) -> tuple[bytes, bytes]:
    try:
        sealed = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
    except ValueError:
        sealed = b""
    # Base64 can be written in several ways; only the one that was given is taken.
    if len(sealed) != _HEAD.size + _MAC().digest_size or base64.urlsafe_b64encode(sealed).decode() != text:
        raise _refused("is none that was given for this request")
    return sealed[: _HEAD.size], sealed[_HEAD.size :]


def _mac(key: bytes, head: bytes, origin: Origin) -> bytes:
    return hmac.digest(key, head + origin.digest(), _MAC)


def _refused(says: str) -> Refusal:
    return Refusal(ErrorKind.INVALID_PARAMS, f"Invalid params: params.requestState {says}")
