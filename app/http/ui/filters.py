"""Which tasks a list shows, as its address says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Self, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from app.domain.task import Status
from app.storage.listing import Activity, TaskFilter

AGES = {"1h": "the last hour", "24h": "the last 24 hours", "7d": "the last 7 days"}
_SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
LONGEST = 500

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Filters:
    """What a reader has chosen; what cannot be chosen counts as left open.

    Attributes:
        age: how old tasks are at most, one of `AGES`.
        error: words of an error or of a status message.
        after: the last task of the page before.
    """

    status: Status | None = None
    activity: Activity | None = None
    tool: str = ""
    owner: str = ""
    error: str = ""
    age: str = ""
    after: UUID | None = None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        """From the query of an address."""
        age = query.get("age", "")
        return cls(
            status=_one(Status, query.get("status", "")),
            activity=_one(Activity, query.get("activity", "")),
            tool=_words(query.get("tool", "")),
            owner=_words(query.get("owner", "")),
            error=_words(query.get("error", "")),
            age=age if age in AGES else "",
            after=_id(query.get("after", "")),
        )

    def which(self) -> TaskFilter:
        """The tasks that are meant."""
        return TaskFilter(
            status=(self.status,) if self.status else (),
            activity=(self.activity,) if self.activity else (),
            tools=(self.tool,) if self.tool else (),
            owners=(self.owner,) if self.owner else (),
            error=self.error or None,
            created_since=datetime.now(UTC) - _SPANS[self.age] if self.age else None,
        )

    def query(self, *, after: UUID | None = None) -> str:
        """The query of the address that says the same, of another page."""
        names = ("status", "activity", "tool", "owner", "error", "age")
        chosen = {name: str(getattr(self, name)) for name in names if getattr(self, name)}
        return "?" + urlencode(chosen | ({"after": str(after)} if after else {}))

    @property
    def any(self) -> bool:
        """Whether anything was chosen."""
        return bool(self.which())


def _one(kind: type[E], text: str) -> E | None:
    return next((each for each in kind if each.value == text), None)


def _words(text: str) -> str:
    return text.strip().replace("\0", "").encode("utf-8", "ignore").decode()[:LONGEST]


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
