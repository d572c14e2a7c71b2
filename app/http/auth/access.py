"""The Authorization header of a request, and the challenges that answer a wrong one (RFC 6750, RFC 9728)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from aiohttp import web

from app.domain.principal import ANONYMOUS, Principal
from app.errors import InsufficientScope
from app.http.replies import Rejected

SCHEME = "bearer"
QUERY = "access_token"


class BadToken(Exception):
    """A token that is not accepted; the message ends the sentence "The token …" and holds nothing of it."""


class VerifierUnavailable(Exception):
    """Whether a token is good cannot be found out at the moment."""


class Verifier(Protocol):
    """Knows whose a token is."""

    async def verify(self, token: str) -> Principal:
        """The principal that the token stands for.

        Raises:
            BadToken: nobody's, or not any more.
            VerifierUnavailable: that cannot be told now.
        """


class Access:
    """Lets requests in.

    Args:
        verifier: knows whose a token is; None lets everybody in as the one anonymous principal.
        metadata_url: where clients find the authorization server; None where there is none.
        scopes: those that every call of a tool needs, named in challenges.
    """

    def __init__(
        self, verifier: Verifier | None = None, *, metadata_url: str | None = None, scopes: Sequence[str] = ()
    ) -> None:
        self._verifier, self._metadata_url, self._scopes = verifier, metadata_url, tuple(scopes)

    @property
    def open(self) -> bool:
        """Whether everybody is let in."""
        return self._verifier is None

    async def principal(self, request: web.BaseRequest) -> Principal:
        """The principal that a request is made for.

        Raises:
            Rejected: 400, 401 or 503; a token that cannot be checked is not called a bad one.
        """
        if self._verifier is None:
            return ANONYMOUS
        token = self._token(request)
        try:
            return await self._verifier.verify(token)
        except BadToken as bad:
            raise self._unauthorized(f"Unauthorized: the token {bad}", error="invalid_token") from None
        except VerifierUnavailable:
            says = "Unavailable: the keys of the authorization server cannot be read. Send the request again."
            raise Rejected(503, says, {"Retry-After": "5"}) from None

    def insufficient(self, lacking: InsufficientScope) -> Rejected:
        """The answer to a principal that may not do what it asks for (core, "Scope Challenge Handling")."""
        says = f"Forbidden: this needs the scopes {' '.join(lacking.scopes)}"
        challenge = self._challenge(error="insufficient_scope", scopes=lacking.scopes)
        return Rejected(403, says, {"WWW-Authenticate": challenge})

    def _token(self, request: web.BaseRequest) -> str:
        if QUERY in request.query:
            raise self._malformed("a token is sent in the Authorization header, never in the URL")
        given = request.headers.getall("Authorization", [])
        if not given:
            raise self._unauthorized("Unauthorized: send a token, as Authorization: Bearer …")
        if len(given) > 1:
            raise self._malformed("there is more than one Authorization header")
        scheme, _, token = given[0].partition(" ")
        token = token.strip()
        if scheme.lower() != SCHEME or not token or " " in token or not token.isascii() or not token.isprintable():
            raise self._unauthorized("Unauthorized: the Authorization header must hold Bearer and one token")
        return token

    def _unauthorized(self, says: str, *, error: str | None = None) -> Rejected:
        challenge = self._challenge(error=error, scopes=self._scopes)
        return Rejected(401, says, {"WWW-Authenticate": challenge})

    def _malformed(self, says: str) -> Rejected:
        challenge = self._challenge(error="invalid_request", scopes=())
        return Rejected(400, f"Bad request: {says}", {"WWW-Authenticate": challenge})

    def _challenge(self, *, error: str | None, scopes: Iterable[str]) -> str:
        """All values are our own, or checked when they were read: none holds a quote or a control character."""
        said = {"error": error, "scope": " ".join(scopes), "resource_metadata": self._metadata_url}
        return "Bearer " + ", ".join(
            [f'{name}="{value}"' for name, value in said.items() if value] or ['realm="perdure"']
        )
