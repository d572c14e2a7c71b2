"""Scopes: what an authorization server grants a client, and which grants imply others."""

from __future__ import annotations

import re
from collections.abc import Iterable

SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}")
"""A scope as OAuth writes it (RFC 6749, section 3.3)."""


class Scopes:
    """Knows which scopes are broader than others (core, "Scope Challenge Handling").

    Args:
        broader: pairs of a scope and one that it implies.
    """

    def __init__(self, broader: Iterable[tuple[str, str]] = ()) -> None:
        self._implied: dict[str, set[str]] = {}
        for broad, narrow in broader:
            self._implied.setdefault(broad, set()).add(narrow)

    def expand(self, granted: Iterable[str]) -> frozenset[str]:
        """What was granted, and all that it implies."""
        reached, left = set[str](), list(granted)
        while left:
            scope = left.pop()
            if scope not in reached:
                reached.add(scope)
                left += self._implied.get(scope, ())
        return frozenset(reached)
