"""Who makes a request, and what they may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.errors import InsufficientScope


@dataclass(frozen=True, slots=True)
class Principal:
    """The one on whose behalf a request is made.

    Attributes:
        owner: names them for all time: whatever they create is theirs, and nobody else's.
        scopes: what they were granted, with all that it implies; None where scopes are not asked for.
    """

    owner: str
    scopes: frozenset[str] | None = None

    def require(self, needed: Iterable[str]) -> None:
        """See to it that they were granted all of these.

        Raises:
            InsufficientScope: they were not; it names all that are needed, so that the client has to ask only once.
        """
        wanted = frozenset(needed)
        if self.scopes is not None and not wanted <= self.scopes:
            raise InsufficientScope(tuple(sorted(wanted)))


ANONYMOUS = Principal("anonymous")
"""Everybody, where nobody is asked who they are."""
