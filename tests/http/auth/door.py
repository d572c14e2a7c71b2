"""A server without a database that lets tokens of an issuer in."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from app.domain.principal import Principal
from app.domain.task import Json
from app.http.auth.access import Access
from app.http.auth.key_set import KeySet
from app.http.auth.tokens import AccessTokens
from app.methods.call import Call
from tests.http.scripted import Caller, said, scripted
from tests.support.issuer import AUDIENCE, Issuer
from tests.support.rpc import Reply

PING = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


class Door:
    """A server that lets tokens of an issuer in, and notes for whom."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.principals: list[Principal] = []

    async def admits(self, token: str) -> Principal:
        """The principal that this token is let in for."""
        reply = await self.caller.with_(token=token).rpc("tools/call", {"name": "it"})
        assert reply.status == 200, reply.body
        return self.principals[-1]

    async def refuses(self, token: str) -> Reply:
        """The answer to a token that is not let in."""
        before = len(self.principals)
        reply = await self.caller.post(PING, {"Authorization": f"Bearer {token}"}, unread=True)
        assert len(self.principals) == before
        return reply

    async def status(self, token: str) -> int:
        """The status of the answer to this token, whatever it is."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        async with self.caller.session.post(self.caller.url, data=PING, headers=headers) as response:
            return response.status


@asynccontextmanager
async def door(
    issuer: Issuer, *, keys_at: str | None = None, clock: Callable[[], float] = time.monotonic, **options: Any
) -> AsyncIterator[Door]:
    """Serve, for tokens of this issuer only; `options` are those of AccessTokens."""
    keys = KeySet(issuer.url, keys_at, clock=clock)
    tokens = AccessTokens(keys, **{"issuer": issuer.url, "audiences": [AUDIENCE]} | options)

    async def look(call: Call) -> Json:
        opened.principals.append(call.principal)
        return said("in")

    try:
        async with scripted(look, access=Access(tokens)) as caller:
            opened = Door(caller)
            yield opened
    finally:
        await keys.close()
