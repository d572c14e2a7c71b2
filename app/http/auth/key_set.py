"""The public keys of an authorization server (RFC 7517), wherever its metadata says that they are (RFC 8414).

They are fetched when the first token comes, again when they are old, and again for a key that is not among them: at a
bounded rate, so that made-up key ids cost the authorization server nothing. All requests wait for the same fetch, and
none of them for long. While the keys cannot be had, those that were read before stay good for a while.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import jwt
import structlog

from app.domain.urls import is_secure
from app.http.auth.access import VerifierUnavailable

log = structlog.get_logger(__name__)

FRESH_SECONDS = 300.0
"""Keys of this age are fetched again, beside the requests that come meanwhile."""

STALE_SECONDS = 3600.0
"""Keys of this age are not used any more: one that was withdrawn is trusted no longer than that."""

AGAIN_SECONDS = 10.0
"""How long after a fetch an unknown key, or the failure of that fetch, leads to another one."""

FETCH_SECONDS = 5.0
MAX_BYTES = 262_144
MAX_KEYS = 100
MIN_RSA_BITS = 2048

_FITTING = {"RS": ("RSA", None), "PS": ("RSA", None), "Ed": ("OKP", None)}
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


@dataclass(frozen=True, slots=True)
class Key:
    """A public key.

    Attributes:
        key_id: what tokens call it.
        kind: the key type and, of an elliptic curve, which one.
        algorithm: the only one that it is for; None if its server did not say.
    """

    key_id: str | None
    kind: tuple[str, str | None]
    algorithm: str | None
    public: Any

    def fits(self, key_id: str | None, algorithm: str) -> bool:
        """Whether a token that says so may have been signed with it."""
        kind = _FITTING.get(algorithm[:2]) or ("EC", _CURVES.get(algorithm))
        return self.kind == kind and self.algorithm in (None, algorithm) and key_id in (None, self.key_id)


class KeySet:
    """Fetches and keeps keys.

    Args:
        issuer: the authorization server.
        url: where its keys are; None asks its metadata.
        clock: seconds.
    """

    def __init__(self, issuer: str, url: str | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer, self._url, self._clock = issuer, url, clock
        self._keys: list[Key] | None = None
        self._read_at = self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> list[Key]:
        """The keys that a token with this head may have been signed with; mostly one.

        Raises:
            VerifierUnavailable: the keys cannot be had, or this one is unknown while they cannot be fetched again.
        """
        if self._age() >= STALE_SECONDS:
            await self._fetch()
        elif self._age() >= FRESH_SECONDS:
            self._start()
        found = self._fitting(key_id, algorithm)
        if not found:
            await self._fetch()
            found = self._fitting(key_id, algorithm)
        if not found and (self._keys is None or self._read_at < self._tried_at):
            raise VerifierUnavailable
        return found

    async def close(self) -> None:
        """Stop fetching."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})

    def _age(self) -> float:
        return self._clock() - self._read_at

    def _fitting(self, key_id: str | None, algorithm: str) -> list[Key]:
        keys = self._keys if self._age() < STALE_SECONDS else None
        return [key for key in keys or () if key.fits(key_id, algorithm)]

    async def _fetch(self) -> None:
        """Wait for a fetch that is under way, or for a new one if the last was not just now."""
        self._start()
        if self._fetching is not None:
            await asyncio.wait({self._fetching})

    def _start(self) -> None:
        under_way = self._fetching is not None and not self._fetching.done()
        if not under_way and self._clock() - self._tried_at >= AGAIN_SECONDS:
            self._tried_at = self._clock()
            self._fetching = asyncio.create_task(self._read())

    async def _read(self) -> None:
        tried_at = self._tried_at
        try:
            async with asyncio.timeout(FETCH_SECONDS), aiohttp.ClientSession() as session:
                url = self._url or await _discover(session, self._issuer)
                self._keys = _keys(await _get(session, url))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log.warning("the keys of the authorization server cannot be read", error=type(error).__name__)
        else:
            self._read_at = tried_at


async def _discover(session: aiohttp.ClientSession, issuer: str) -> str:
    """Where the keys are, from the first of the metadata documents that is there (core, "Authorization Server Metadata
    Discovery"). One that names another issuer is not used."""
    for place in _places(issuer):
        try:
            document = await _get(session, place)
        except (aiohttp.ClientResponseError, ValueError):
            continue
        if document.get("issuer") == issuer and is_secure(document.get("jwks_uri")):
            return str(document["jwks_uri"])
    raise ValueError("no metadata")


def _places(issuer: str) -> list[str]:
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    server, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
    places = [origin + server + path, origin + openid + path, origin + path + openid]
    return list(dict.fromkeys(places))


async def _get(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with session.get(url, allow_redirects=False, headers={"Accept": "application/json"}) as response:
        response.raise_for_status()
        body = await response.content.read(MAX_BYTES + 1)
        while len(body) <= MAX_BYTES and (more := await response.content.read(MAX_BYTES + 1)):
            body += more
    if response.status != 200 or len(body) > MAX_BYTES:
        raise ValueError("no document, or too large a one")
    try:
        document = json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return document


def _keys(document: dict[str, Any]) -> list[Key]:
    """The keys of a document that can be used; what is of no use to us is passed over."""
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError("no keys")
    keys = [key for entry in listed[:MAX_KEYS] if (key := _key(entry)) is not None]
    if not keys:
        raise ValueError("no keys that can be used")
    return keys


def _key(entry: Any) -> Key | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or entry.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    if "d" in entry:  # a private key that everyone can read proves nothing
        return None
    try:
        public = jwt.PyJWK(entry | {"alg": _usual(entry)}).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if entry["kty"] == "RSA" and public.key_size < MIN_RSA_BITS:
        return None
    curve = entry.get("crv") if entry["kty"] == "EC" else None
    return Key(entry.get("kid"), (entry["kty"], curve), entry.get("alg"), public)


def _usual(entry: dict[str, Any]) -> str:
    """An algorithm by which the key can be read; which one does not matter."""
    curves = {curve: algorithm for algorithm, curve in _CURVES.items()}
    return {"RSA": "RS256", "OKP": "EdDSA"}.get(entry["kty"]) or curves.get(str(entry.get("crv")), "ES256")
