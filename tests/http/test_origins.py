"""Pages of allowed origins can call from a browser; those of others learn nothing."""

from __future__ import annotations

import aiohttp
import pytest

from app.http.guards import Guard
from tests.support.service import Service, serving

PAGE = "https://app.example.com"
PING = b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}'
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, mcp-param-region"}


async def ask(service: Service, origin: str, **more: str) -> aiohttp.ClientResponse:
    headers = {"Origin": origin, **ASKS, **more}
    async with service.client.session.options(service.client.url, headers=headers) as response:
        return response


async def test_a_browser_may_send_what_a_page_of_an_allowed_origin_asks_for(db_url: str) -> None:
    async with serving(db_url, guard=Guard(origins=[PAGE])) as service:
        answer = await ask(service, PAGE)
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert answer.headers["Access-Control-Allow-Methods"] == "POST"
        assert answer.headers["Access-Control-Allow-Headers"] == "authorization, mcp-param-region"
        assert answer.headers["Vary"] == "Origin"
        assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_the_page_may_read_what_comes_back(db_url: str, accept: str) -> None:
    async with serving(db_url, guard=Guard(origins=[PAGE])) as service:
        reply = await service.client.post(PING, {"Origin": PAGE, "Accept": accept})
        assert reply.headers["Access-Control-Allow-Origin"] == PAGE
        assert "WWW-Authenticate" in reply.headers["Access-Control-Expose-Headers"]
        assert "Access-Control-Allow-Origin" not in (await service.client.post(PING)).headers
        assert reply.headers["Server"] == "Perdure"


async def test_a_page_of_another_origin_may_neither_send_nor_read(db_url: str) -> None:
    async with serving(db_url, guard=Guard(origins=[PAGE])) as service:
        answer = await ask(service, "https://evil.example")
        assert answer.status == 403
        reply = await service.client.post(PING, {"Origin": "https://evil.example"}, unread=True)
        assert reply.status == 403
        for headers in (answer.headers, reply.headers):
            assert not [name for name in headers if name.startswith("Access-Control")]


async def test_names_of_headers_that_are_none_are_not_repeated(db_url: str) -> None:
    async with serving(db_url, guard=Guard(origins=[PAGE])) as service:
        answer = await ask(service, PAGE, **{"Access-Control-Request-Headers": "a; b=<c>"})
        assert "Access-Control-Allow-Headers" not in answer.headers
