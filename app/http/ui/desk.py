"""What the pages work with. It comes when the process is ready to serve and goes when it stops; before and after, pages
say so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from app.errors import StoreUnavailable
from app.storage.operator import Operator
from app.storage.watches import Watches

LOOK_SECONDS = 10.0
"""How long the database may take for what a page shows."""


class Desk:
    """The operator whose eyes and hands the pages are."""

    def __init__(self) -> None:
        self._parts: tuple[Operator, Watches] | None = None
        self.closing = asyncio.Event()
        """Set when streams must end."""

    @property
    def operator(self) -> Operator:
        """Sees and steers.

        Raises:
            StoreUnavailable: the process is starting or stopping.
        """
        return self._here()[0]

    @property
    def watches(self) -> Watches:
        """Tells of changes. Raises as `operator` does."""
        return self._here()[1]

    @contextmanager
    def staffed(self, operator: Operator, watches: Watches) -> Iterator[None]:
        """While this is entered there is somebody."""
        self._parts = operator, watches
        try:
            yield
        finally:
            self._parts = None
            self.closing.set()

    def _here(self) -> tuple[Operator, Watches]:
        if self._parts is None:
            raise StoreUnavailable("The process is starting or stopping.")
        return self._parts


DESK = web.AppKey("desk", Desk)
