"""An authorization server of the tests' own: its documents, its keys, the tokens that it issues, and how it fails."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE = "https://mcp.example.com/mcp"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
KEYS = "/keys"

Mode = Literal["up", "down", "failing", "slow", "redirecting", "too large", "garbage", "nested", "a list"]
Kind = Literal["RSA", "RSA-1024", "P-256", "P-384", "Ed25519"]
ALGORITHMS: dict[Kind, str] = {
    "RSA": "RS256",
    "RSA-1024": "RS256",
    "P-256": "ES256",
    "P-384": "ES384",
    "Ed25519": "EdDSA",
}


@cache
def private_key(kind: Kind, name: str) -> Any:
    """A private key; the same one for the same name, as making one takes a while."""
    match kind:
        case "RSA":
            return rsa.generate_private_key(65537, 2048)
        case "RSA-1024":
            return rsa.generate_private_key(65537, 1024)  # noqa: S505  # it is to be refused
        case "P-256":
            return ec.generate_private_key(ec.SECP256R1())
        case "P-384":
            return ec.generate_private_key(ec.SECP384R1())
        case "Ed25519":
            return ed25519.Ed25519PrivateKey.generate()


@dataclass(frozen=True)
class SigningKey:
    """A key of the server, under the id that tokens call it by."""

    kid: str
    kind: Kind = "RSA"

    @property
    def private(self) -> Any:
        """The key itself."""
        return private_key(self.kind, self.kid)

    def jwk(self, *, private: bool = False) -> dict[str, Any]:
        """The entry of a key set, with the private part or without."""
        of = jwt.algorithms.get_default_algorithms()[ALGORITHMS[self.kind]]
        shown = self.private if private else self.private.public_key()
        return {**of.to_jwk(shown, as_dict=True), "kid": self.kid, "use": "sig"}


FIRST = SigningKey("first")


@dataclass
class Issuer:
    """A running server.

    Attributes:
        url: what its tokens name it.
        mode: how it answers from now on.
        keys: the entries of its key set.
        metadata: its documents, by path; `{}` for those that are not there.
        requests: how often each path was asked for.
        answering: requests in mode `slow` wait for it.
    """

    url: str
    mode: Mode = "up"
    keys: list[Any] = field(default_factory=lambda: [FIRST.jwk()])
    metadata: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    answering: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def fetches(self) -> int:
        """How often the keys were asked for."""
        return self.requests[KEYS]

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Claims of a good token; a change to None takes one out."""
        good = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "exp": int(time.time()) + 600}
        return {name: value for name, value in (good | changes).items() if value is not None}

    def token(
        self,
        key: SigningKey = FIRST,
        *,
        head: dict[str, Any] | None = None,
        alg: str | None = None,
        **claims: Any,
    ) -> str:
        """A token, signed as such; what is given differs from a good one."""
        headers = {"kid": key.kid, "typ": "at+jwt"} | (head or {})
        return jwt.encode(self.claims(**claims), key.private, alg or ALGORITHMS[key.kind], headers)


def forged(head: dict[str, Any] | str, claims: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """A token that no library would make."""
    text = head if isinstance(head, str) else json.dumps(head)
    signed = f"{encoded(text.encode())}.{encoded(json.dumps(claims).encode())}"
    return f"{signed}.{encoded(sign(signed.encode()))}"


def encoded(data: bytes) -> str:
    """Base64 as tokens have it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@asynccontextmanager
async def issuing(path: str = "") -> AsyncIterator[Issuer]:
    """Run the server; its issuer has this path."""
    app = web.Application()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    issuer = Issuer("")

    async def handle(request: web.Request) -> web.StreamResponse:
        return await _answer(issuer, request)

    app.router.add_get("/{path:.*}", handle)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        issuer.url = origin + path
        issuer.metadata[SERVER + path] = {"issuer": issuer.url, "jwks_uri": origin + KEYS}
        yield issuer
    finally:
        await runner.cleanup()


async def _answer(issuer: Issuer, request: web.Request) -> web.StreamResponse:
    issuer.requests[request.path] += 1
    match issuer.mode:
        case "down":
            if request.transport is not None:
                request.transport.abort()
        case "failing":
            raise web.HTTPInternalServerError
        case "slow":
            await issuer.answering.wait()
        case "redirecting" if not request.path.startswith("/moved"):
            raise web.HTTPFound(f"/moved{request.path}")
        case "too large":
            return _json({"padding": "x" * 300_000} | (_document(issuer, request.path) or {}))
        case "garbage":
            return web.Response(body=b"\xff{")
        case "nested":
            return web.Response(text="[" * 100_000)
        case "a list":
            return _json([])
    document = _document(issuer, request.path.removeprefix("/moved"))
    return web.Response(status=404) if document is None else _json(document)


def _document(issuer: Issuer, path: str) -> dict[str, Any] | None:
    return {"keys": issuer.keys} if path == KEYS else issuer.metadata.get(path)


def _json(value: Any) -> web.Response:
    return web.json_response(value)
