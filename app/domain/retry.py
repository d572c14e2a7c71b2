"""How often, and when, an attempt that failed is made again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from app.domain.duration import parse_duration

MOST = 1_000


@dataclass(frozen=True, slots=True)
class Retry:
    """A tool's decision about attempts that end in an exception which is no outcome.

    `ToolError` and `ProtocolError` are outcomes, and so are results that cannot be used and timeouts: none of them is
    tried again.

    Attributes:
        times: how many attempts may fail before the last one's failure is the task's.
        on: the exceptions that are tried again; without any, all of them.
        delay: the pause before the second attempt.
        factor: by how much the pause grows with each failure.
        max: the longest pause.
        jitter: the pause is longer or shorter by up to this part of it, so that tasks that failed together do not come
            back together.
    """

    times: int = 0
    on: tuple[type[Exception], ...] = ()
    delay: str | timedelta = "1s"
    factor: float = 2
    max: str | timedelta = "5m"
    jitter: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            ValueError: with what is wrong, by the name of the argument.
        """
        for name, value in (("delay", self.delay), ("max", self.max)):
            try:
                parse_duration(value, zero=True, longest="30d")
            except ValueError as error:
                raise ValueError(f"retries.{name}: {error}") from error
        if parse_duration(self.delay, zero=True) > parse_duration(self.max, zero=True):
            raise ValueError("retries.delay is longer than retries.max")
        if not 0 <= self.times <= MOST:
            raise ValueError(f"retries.times must be a number from 0 to {MOST}")
        if not 1 <= self.factor <= 100:
            raise ValueError("retries.factor must be a number from 1 to 100")
        if not 0 <= self.jitter <= 1:
            raise ValueError("retries.jitter must be a number from 0 to 1")
        if not all(issubclass(kind, Exception) for kind in self.on):
            raise ValueError("retries.on must be a tuple of exception classes")

    def covers(self, error: BaseException, failures: int) -> bool:
        """Whether an attempt that ended with this error is made again, after so many that have failed before."""
        return failures < self.times and isinstance(error, self.on or Exception)

    def pause_ms(self, failures: int, spread: float) -> int:
        """The pause before the next attempt, in milliseconds.

        Args:
            failures: how many attempts have failed before the one that has just failed.
            spread: a random number from -1 to 1, which is stretched by the jitter.
        """
        longest = parse_duration(self.max, zero=True, longest="30d")
        pause: float = parse_duration(self.delay, zero=True, longest="30d")
        for _ in range(failures):
            pause *= self.factor
            if pause >= longest:
                break
        return round(min(pause, longest) * (1 + self.jitter * spread))
