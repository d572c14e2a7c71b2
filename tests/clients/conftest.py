"""A service for clients that are not ours, in a process of its own, and what they send to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.dev import running_dev

TOOLS = Path(__file__).with_name("tools.py")


@pytest.fixture(scope="module")
def url(module_db_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the examples and the tools of tools.py."""
    with running_dev(tmp_path_factory.mktemp("dev"), module_db_url, "app.examples", TOOLS) as url:
        yield url


@dataclass(frozen=True)
class Sent:
    """A request that a client sent, and the status that it was answered with."""

    headers: httpx2.Headers
    message: dict[str, Any]
    status: int
    kind: str

    @property
    def method(self) -> str:
        """The method that it names."""
        return str(self.message["method"])


@dataclass
class Traffic:
    """What a client sends. Clients are made with `http`, where they take one."""

    sent: list[Sent] = field(default_factory=list)

    def http(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        follow_redirects: bool = False,
    ) -> httpx2.AsyncClient:
        """An HTTP client whose traffic is kept here; it waits 30 s where nothing else is said."""
        return httpx2.AsyncClient(
            headers=headers,
            timeout=timeout or httpx2.Timeout(30),
            auth=auth,
            transport=transport,
            follow_redirects=follow_redirects,
            event_hooks={"response": [self._keep]},
        )

    def of(self, *methods: str) -> list[Sent]:
        """The requests of these methods."""
        return [each for each in self.sent if each.method in methods]

    async def _keep(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":
            kind = response.headers.get("content-type", "").partition(";")[0]
            message = json.loads(response.request.content)
            self.sent.append(Sent(response.request.headers, message, response.status_code, kind))


@pytest.fixture
def traffic() -> Traffic:
    """An empty one."""
    return Traffic()
