"""Web addresses that people or programs are sent to."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_PRINTED = re.compile(r"[\x21\x23-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e\x25]+")
"""What an address is written in: no blanks, no quotes, no control characters."""


def is_secure(url: object, *, elsewhere: bool = False) -> bool:
    """Whether nobody on the way can read or change what goes there: https, or http on this very machine.

    Args:
        elsewhere: http will do for any host.
    """
    if not isinstance(url, str) or not _PRINTED.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or "@" in parts.netloc:  # a name before the host makes it look like another one
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and (elsewhere or host in LOCAL_NAMES))
