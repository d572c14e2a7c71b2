"""Static API keys: one line a key, which names its owner and holds the key's hash.

    # owner       sha256 of the key                                                    scopes
    ci            sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
    reporting     sha256:fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13   tools:call

An owner may have several keys, so that a new one works before the old one is taken out. A line without scopes may do
everything. A file is read again when it changes; what cannot be used then leaves the old keys in force.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import structlog

from app.domain.principal import Principal
from app.domain.scopes import SCOPE, Scopes
from app.errors import SettingsError
from app.http.auth.access import BadToken

log = structlog.get_logger(__name__)

PREFIX = "perdure_"
MAX_FILE = 4 * 1024 * 1024
"""Bytes of a file of keys."""

LOOK_SECONDS = 1.0
"""How often a file is looked at, at most."""

_OWNER = re.compile(r"[\x21-\x7e]{1,256}")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")

Keys = Mapping[bytes, Principal]
"""Principals by the hashes of their keys. Looking a hash up takes a time that tells of hashes, not of keys."""


def new_key() -> str:
    """A new key, of 256 random bits: that is why one plain round of SHA-256 is enough to hide it."""
    return PREFIX + secrets.token_urlsafe(32)


def line(owner: str, key: str, scopes: tuple[str, ...] = ()) -> str:
    """The line that makes a key an owner's.

    Raises:
        SettingsError: the owner or a scope cannot be used.
    """
    written = " ".join([owner, f"sha256:{hashlib.sha256(key.encode()).hexdigest()}", *scopes])
    meant = Principal(owner, frozenset(scopes) if scopes else None)
    if list(read_keys(written, Scopes()).values()) != [meant]:  # nothing, a blank, a comma or # stands in one of them
        raise SettingsError("The owner or a scope cannot be written in a line of API keys")
    return written


def read_keys(text: str, scopes: Scopes) -> dict[bytes, Principal]:
    """Read lines, or what is separated by commas.

    Raises:
        SettingsError: a line cannot be used; the message has its number, and none of its text.
    """
    keys: dict[bytes, Principal] = {}
    for number, entry in _entries(text):
        key_hash, principal = _entry(entry.split(), number, scopes)
        if keys.setdefault(key_hash, principal) != principal:
            raise SettingsError(f"API keys, line {number}: the key stands in an earlier line already")
    return keys


def _entries(text: str) -> Iterator[tuple[int, str]]:
    for number, written in enumerate(text.splitlines(), 1):
        for entry in written.split("#", 1)[0].split(","):
            if entry.strip():
                yield number, entry


def _entry(words: list[str], number: int, scopes: Scopes) -> tuple[bytes, Principal]:
    owner, digest, granted = words[0], words[1] if len(words) > 1 else "", words[2:]
    if not _OWNER.fullmatch(owner):
        raise SettingsError(f"API keys, line {number}: an owner is written in up to 256 ASCII characters")
    match = _HASH.fullmatch(digest)
    if match is None:
        raise SettingsError(
            f"API keys, line {number}: after the owner stands sha256: and 64 hexadecimal digits; "
            "`perdure keys new OWNER` makes a key and its line"
        )
    if not all(SCOPE.fullmatch(scope) for scope in granted):
        raise SettingsError(f"API keys, line {number}: a scope cannot be used")
    return bytes.fromhex(match[1]), Principal(owner, scopes.expand(granted) if granted else None)


class ApiKeys:
    """Verifies keys.

    Args:
        text: keys that do not change while the process runs.
        path: a file of keys.
        scopes: which of them imply others.

    Raises:
        SettingsError: they cannot be read, or there are none.
    """

    def __init__(
        self,
        text: str = "",
        path: Path | None = None,
        scopes: Scopes | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scopes, self._path, self._clock = scopes or Scopes(), path, clock
        self._fixed = read_keys(text, self._scopes)
        self._seen: object = None if path is None else _state(path)
        self._filed = {} if path is None else read_keys(_read(path), self._scopes)
        self._looked_at = clock()
        if not self._fixed and not self._filed:
            raise SettingsError("There are no API keys: `perdure keys new OWNER` makes one, and its line")

    async def verify(self, token: str) -> Principal:
        """See `Verifier`."""
        self._look()
        key_hash = hashlib.sha256(token.encode()).digest()
        principal = self._fixed.get(key_hash) or self._filed.get(key_hash)
        if principal is None:
            raise BadToken("is no API key of this server")
        return principal

    def _look(self) -> None:
        """Read the file again if it is another one now."""
        now = self._clock()
        if self._path is None or now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        seen = _state(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._filed = read_keys(_read(self._path), self._scopes)
        except SettingsError as unusable:
            log.error("API keys cannot be read again: those read before stay in force", reason=str(unusable))
        else:
            log.info("API keys were read again", keys=len(self._filed))


def _state(path: Path) -> object:
    """Differs once the file is another one; taken before it is read."""
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE:
            raise SettingsError(f"The file of API keys is larger than {MAX_FILE} bytes")
        return path.read_text("utf-8")
    except OSError as error:
        reason = error.strerror
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    raise SettingsError(f"The file of API keys (PERDURE_API_KEYS_FILE) cannot be read: {reason}")
