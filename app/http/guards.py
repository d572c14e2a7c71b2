"""Requests from the wrong place: a page in a user's browser must not reach a server on their own machine.

Such a page gives itself away by its `Origin`, and after DNS rebinding by the `Host` that it asked for (core,
"Security & Endpoint"). By default only local names are right for either.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from ipaddress import ip_address

from app.wire.headers import Head

LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})
ANY = "*"

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/?#@\[\]]+)(?::[0-9]*)?")


class Guard:
    """Says which requests to refuse.

    Args:
        hosts: names, without a port, that this server is known by beside local ones; `*` for any.
        origins: origins such as `https://app.example.com` whose pages may call it beside local ones; `*` for any.
        addresses: whether it is known by any IP address too. Rebinding needs a name, so that this lets no page in;
            probes and scrapers go to the address of each process.
        pages: whether it has pages itself; they may call the host that they came from.
    """

    def __init__(
        self,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        *,
        addresses: bool = False,
        pages: bool = False,
    ) -> None:
        self._addresses, self._pages = addresses, pages
        self._hosts = LOCAL | {host.lower() for host in hosts}
        self._origins = {origin.lower().rstrip("/") for origin in origins}

    def objection(self, head: Head) -> str | None:
        """Why a request with these headers is refused, None for one that is not."""
        host = head.get("host", "").lower()
        if not self._is_known(host):
            return "Forbidden: this server is not known by the name in the Host header"
        origin = head.get("origin", "").lower()
        own = self._pages and origin in (f"http://{host}", f"https://{host}")
        if "origin" in head and not own and not self._is_allowed(origin):
            return "Forbidden: pages of this Origin may not call this server"
        return None

    def _is_known(self, host: str) -> bool:
        name = _name(host)
        return ANY in self._hosts or name in self._hosts or (self._addresses and name is not None and _is_address(name))

    def _is_allowed(self, origin: str) -> bool:
        if ANY in self._origins or origin in self._origins:
            return True
        scheme, _, authority = origin.partition("://")
        return scheme in ("http", "https") and _name(authority) in LOCAL


@lru_cache(maxsize=16)  # few, for each may be as large as a head: up to 1 MB
def _name(authority: str) -> str | None:
    """The name in a host with or without a port; None for what is no host."""
    match = _AUTHORITY.fullmatch(authority)
    return match and match[1]


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
