"""The operators' pages on a free port, with a browser's manners but no browser."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from aiohttp import ClientSession, CookieJar

from app.http.guards import Guard
from app.http.ops import Ops
from app.http.readiness import Readiness
from app.http.ui.sessions import Sessions, Tries
from app.http.ui.site import Site
from app.storage.database import Database
from app.storage.operator import Operator
from app.storage.watches import Watches
from tests.support.service import listening
from tests.support.worker import notifying

HOST = "127.0.0.1"
PASSWORD = "a password of the tests"


@dataclass(frozen=True)
class Page:
    """What came back.

    Attributes:
        path: where it was found in the end.
    """

    status: int
    path: str
    html: str
    headers: dict[str, str]

    @property
    def words(self) -> str:
        """What a reader sees: no markup, single blanks."""
        text = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", self.html, flags=re.DOTALL)
        return re.sub(r"\s+", " ", html.unescape(text)).strip()

    @property
    def token(self) -> str:
        """What the page's forms carry."""
        found = re.search(r'name="token" value="([0-9a-f]+)"', self.html)
        assert found, self.words
        return found[1]

    @property
    def links(self) -> list[str]:
        """Where one can go from it."""
        return [html.unescape(link) for link in re.findall(r'<a [^>]*href="([^"]*)"', self.html)]


@dataclass(frozen=True)
class Reader:
    """Somebody with a browser.

    Attributes:
        url: of the operators' port.
        operator: the pages' own.
        site: the pages.
    """

    session: ClientSession
    url: str
    operator: Operator
    site: Site

    async def get(self, path: str, *, follow: bool = True, headers: dict[str, str] | None = None) -> Page:
        """Open a page of /ui."""
        return await self._ask("GET", path, follow, headers or {})

    async def post(self, path: str, *, follow: bool = True, origin: str | None = "", **fields: Any) -> Page:
        """Send a form; lists are sent item by item.

        Args:
            origin: where the form seems to be from; None for nowhere, by default here.
        """
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if origin is not None:
            headers["Origin"] = origin or self.url
        body = urlencode(fields, doseq=True, encoding="utf-8")
        return await self._ask("POST", path, follow, headers, body)

    async def log_in(self, password: str = PASSWORD, next_: str = "") -> Page:
        """Send the password."""
        return await self.post("/login", password=password, next=next_)

    async def act(self, path: str, **fields: Any) -> Page:
        """Open the page of a form, and send it with these fields."""
        return await self.post(path, token=(await self.get(path)).token, **fields)

    async def _ask(self, method: str, path: str, follow: bool, headers: dict[str, str], body: str = "") -> Page:
        url = f"{self.url}/ui{path}"
        asked = self.session.request(method, url, data=body or None, headers=headers, allow_redirects=follow)
        async with asked as answer:
            path = answer.url.raw_path_qs
            return Page(answer.status, path, await answer.text(), dict(answer.headers))


@asynccontextmanager
async def pages(
    db_url: str,
    *,
    logged_in: bool = True,
    listens: bool = False,
    sessions: Sessions | None = None,
    tries: Tries | None = None,
    poll_seconds: float = 0.05,
) -> AsyncIterator[Reader]:
    """The pages, and somebody before them."""
    site = Site(PASSWORD, sessions=sessions, tries=tries)
    ops = Ops(Readiness(), Guard(addresses=True, pages=True), pages={"/ui": site.app})
    port = await ops.start(HOST, 0)
    try:
        async with (
            Database(db_url, connections=4, by_index=False) as database,
            notifying(database, listens) as notifier,
            listening(db_url, listens) as listener,
            ClientSession(cookie_jar=CookieJar(unsafe=True)) as session,
        ):
            operator = Operator(database, notifier)
            reader = Reader(session, f"http://{HOST}:{port}", operator, site)
            with site.desk.staffed(operator, Watches(listener, poll_seconds=poll_seconds)):
                if logged_in:
                    assert (await reader.log_in()).status == 200
                yield reader
    finally:
        await ops.stop()
