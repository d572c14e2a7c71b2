"""Stretches of time, by the machine's clock, which is the database's too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FOREVER = float("inf")


@dataclass
class Window:
    """From `begin` to `end`, in seconds since the epoch; without an end it lasts still."""

    begin: float
    end: float = FOREVER

    def meets(self, begin: float, end: float) -> bool:
        """Whether the two have a moment in common."""
        return self.begin <= end and begin <= self.end


def any_meets(windows: Iterable[Window], begin: float, end: float) -> bool:
    """Whether one of these has a moment in common with that stretch."""
    return any(window.meets(begin, end) for window in windows)
