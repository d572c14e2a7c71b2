"""How long to rest after work that may be done again and again, and whose cost is not known before."""

from __future__ import annotations

FACTOR = 50
LONGEST_SECONDS = 20.0
"""Beside a transaction that stays open, what looks for live rows reads all that have ended since. So rested, each
takes no more than a fiftieth of the database's time, or little more where the longest rest is too short for that."""


def rest(least: float, took: float, *, factor: float = FACTOR, longest: float = LONGEST_SECONDS) -> float:
    """Seconds to rest after work that took so many.

    Args:
        least: the rest after work that cost next to nothing.
        factor: otherwise the rest is so many times as long as the work.
        longest: but not longer than this.
    """
    return max(least, min(factor * took, longest))
