"""Requests from the wrong place (core, "Security & Endpoint")."""

from __future__ import annotations

import tracemalloc

import pytest

from app.http.guards import Guard
from app.wire.headers import Head
from tests.support.service import Service, serving

PING = b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}'
LOCAL_ORIGINS = [
    "http://localhost",
    "http://localhost:3000",
    "https://127.0.0.1:8443",
    "http://[::1]:8765",
    "HTTP://LocalHost",
]
FOREIGN_ORIGINS = [
    "",
    "null",
    "https://evil.example",
    "http://localhost.evil.example",
    "http://evil.example:80#@localhost",
    "http://localhost@evil.example",
    "http://evil.example/localhost",
    "file://localhost",
    "localhost",
    "http://localhost, https://evil.example",
    "http://127.0.0.1.nip.io",
]
LOCAL_HOSTS = ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]", "[::1]:8765", "LOCALHOST"]
FOREIGN_HOSTS = [
    "",
    "evil.example",
    "localhost.evil.example",
    "localhost@evil.example",
    "evil.example:8765",
    "[::2]",
    "0.0.0.0",  # noqa: S104
]


@pytest.mark.parametrize("origin", LOCAL_ORIGINS)
async def test_pages_of_this_machine_are_served(service: Service, origin: str) -> None:
    assert (await service.client.post(PING, {"Origin": origin})).status == 200


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
async def test_pages_from_elsewhere_are_forbidden_whatever_they_ask(service: Service, origin: str) -> None:
    reply = await service.client.post(PING, {"Origin": origin}, unread=True)
    assert reply.status == 403
    assert "id" not in reply.message
    for method in ("GET", "OPTIONS"):
        async with service.client.session.request(method, service.client.url, headers={"Origin": origin}) as response:
            assert response.status == 403


@pytest.mark.parametrize("host", LOCAL_HOSTS)
async def test_local_names_are_served(service: Service, host: str) -> None:
    assert (await service.client.post(PING, {"Host": host})).status == 200


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
async def test_other_names_are_forbidden(service: Service, host: str) -> None:
    assert (await service.client.post(PING, {"Host": host}, unread=True)).status == 403


async def test_names_that_are_configured_are_served_and_no_others(db_url: str) -> None:
    guard = Guard(["Tasks.Example.com"], ["https://app.example.com/"])
    async with serving(db_url, guard=guard) as service:
        post = service.client.post
        assert (await post(PING, {"Host": "tasks.example.com", "Origin": "https://app.example.com"})).status == 200
        assert (await post(PING, {"Host": "tasks.example.com:443"})).status == 200
        assert (await post(PING, {"Host": "other.example.com"}, unread=True)).status == 403
        assert (await post(PING, {"Origin": "https://tasks.example.com"}, unread=True)).status == 403
        assert (await post(PING, {"Origin": "http://app.example.com"}, unread=True)).status == 403


async def test_a_servers_own_pages_may_call_it_where_it_has_any() -> None:
    pages, none = Guard(["ops.example.com"], addresses=True, pages=True), Guard(["ops.example.com"], addresses=True)
    for host, origin, own in (
        ("ops.example.com", "https://ops.example.com", True),
        ("ops.example.com:8766", "http://ops.example.com:8766", True),
        ("10.1.2.3:8766", "http://10.1.2.3:8766", True),
        ("OPS.example.com", "https://ops.Example.com", True),
        ("ops.example.com", "https://ops.example.com:8443", False),
        ("ops.example.com", "https://other.example.com", False),
        ("evil.example", "https://evil.example", False),
        ("ops.example.com", "null", False),
    ):
        head = Head([("Host", host), ("Origin", origin)])
        assert (pages.objection(head) is None) is own
        assert none.objection(head) is not None


def test_origins_of_any_length_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(300):
            assert Guard().objection(Head([("Host", "localhost"), ("Origin", f"http://{number}{'x' * 100_000}")]))
        assert tracemalloc.get_traced_memory()[0] < 5_000_000
    finally:
        tracemalloc.stop()


async def test_a_star_stands_for_any_name(db_url: str) -> None:
    async with serving(db_url, guard=Guard(["*"], ["*"])) as service:
        reply = await service.client.post(PING, {"Host": "any.example", "Origin": "https://other.example"})
        assert reply.status == 200
