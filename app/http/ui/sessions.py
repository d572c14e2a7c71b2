"""Who may see the pages: whoever knows the password, for as long as a cookie says.

A cookie is signed with a key that only the password gives, so that every process of the service takes it and none has
to keep it. Setting another password ends all sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

SESSION_SECONDS = 12 * 3600
TRY_SECONDS = 300.0
"""Over so long wrong passwords are counted."""

WRONG_OF_ONE = 10
WRONG_OF_ALL = 100
ADDRESSES = 1000
"""Of so many addresses that last tried, wrong passwords are counted apart."""


class Sessions:
    """Opens sessions and knows them again.

    Args:
        password: what operators log in with.
        seconds: how long a session lasts.
        clock: the time, in seconds since 1970.
    """

    def __init__(
        self, password: str, *, seconds: int = SESSION_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._seconds, self._clock = seconds, clock
        self._password = hashlib.sha256(password.encode()).digest()
        # Slow on purpose: who gets hold of a cookie must not be able to try passwords against it at leisure.
        self._key = hashlib.scrypt(password.encode(), salt=b"perdure operator pages", n=2**14, r=8, p=1, dklen=32)

    @property
    def seconds(self) -> int:
        """How long a session lasts."""
        return self._seconds

    def is_password(self, text: str) -> bool:
        """Whether this is the password, in a time that tells nothing of it."""
        return hmac.compare_digest(hashlib.sha256(text.encode()).digest(), self._password)

    def open(self) -> str:
        """A new session's cookie."""
        head = f"{int(self._clock()) + self._seconds}.{secrets.token_urlsafe(16)}"
        return f"{head}.{self._sign('session', head)}"

    def left(self, cookie: str) -> float:
        """For how many seconds a cookie is still good; 0 for one that is not, or not ours."""
        head, _, signature = cookie.rpartition(".")
        if not _same(signature, self._sign("session", head)):
            return 0
        return max(0.0, int(head.partition(".")[0]) - self._clock())

    def token(self, cookie: str) -> str:
        """What a form of this session carries, and a page from elsewhere cannot know."""
        return self._sign("form", cookie)

    def is_token(self, cookie: str, text: str) -> bool:
        """Whether a form that carries this comes from one of this session's pages."""
        return _same(text, self.token(cookie))

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


class Tries:
    """Counts wrong passwords, of each address and of all, and says when it is enough for a while.

    Args:
        clock: seconds that only go up.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str | None, tuple[float, int]] = OrderedDict()
        self._all = (0.0, 0)

    def pause(self, address: str | None) -> float:
        """For how many seconds this address may not try; 0 if it may now."""
        one, every = self._wrong.get(address, (0.0, 0)), self._all
        waits = [
            since + TRY_SECONDS - self._clock() for since, count in _over((one, WRONG_OF_ONE), (every, WRONG_OF_ALL))
        ]
        return max([0.0, *waits])

    def wrong(self, address: str | None) -> None:
        """A wrong password came from this address."""
        self._wrong[address] = self._counted(self._wrong.pop(address, (0.0, 0)))
        self._all = self._counted(self._all)
        while len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)

    def _counted(self, before: tuple[float, int]) -> tuple[float, int]:
        since, count = before
        if count == 0 or self._clock() - since >= TRY_SECONDS:
            return self._clock(), 1
        return since, count + 1


def _over(*counted: tuple[tuple[float, int], int]) -> list[tuple[float, int]]:
    return [count for count, limit in counted if count[1] >= limit]


def _same(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode("utf-8", "replace"), b.encode("utf-8", "replace"))
