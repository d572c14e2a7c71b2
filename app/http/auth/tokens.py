"""JWT access tokens (core, "Access Token Usage"; RFC 9068, without its demand for a `typ`, which many servers miss).

Everything that decides is pinned by the operator: the issuer, the audience and the algorithms. A token says which key
it was signed with, and never how it is to be verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import jwt

from app.domain.principal import Principal
from app.domain.scopes import Scopes
from app.http.auth.access import BadToken
from app.http.auth.key_set import Key, KeySet

LEEWAY_SECONDS = 30
"""How far its clock and ours may be apart."""

REQUIRED = ("iss", "aud", "exp", "sub")
MAX_OWNER = 1024
"""Characters of what names a principal."""

_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
_SAID = {
    jwt.ExpiredSignatureError: "has expired",
    jwt.ImmatureSignatureError: "is not valid yet",
    jwt.InvalidAudienceError: "was not issued for this server",
    jwt.InvalidIssuerError: "comes from another issuer",
    jwt.InvalidSignatureError: "has a signature that is not valid",
    jwt.MissingRequiredClaimError: f"lacks one of the claims {', '.join(REQUIRED)}",
}


class AccessTokens:
    """Verifies access tokens.

    Args:
        keys: the authorization server's.
        issuer: the `iss` that a token must have, to the letter.
        audiences: a token must be issued for one of them.
        algorithms: those that a token may be signed with.
        scopes: which of them imply others.
    """

    def __init__(
        self,
        keys: KeySet,
        *,
        issuer: str,
        audiences: Sequence[str],
        algorithms: Sequence[str] = ("RS256", "ES256"),
        scopes: Scopes | None = None,
    ) -> None:
        self._keys, self._issuer, self._audiences = keys, issuer, list(audiences)
        self._algorithms, self._scopes = frozenset(algorithms), scopes or Scopes()

    async def verify(self, token: str) -> Principal:
        """See `Verifier`. The principal is issuer, subject and client, where the token names one."""
        algorithm, key_id = self._head(token)
        keys = await self._keys.find(key_id, algorithm)
        if not keys:
            raise BadToken("was signed with a key that its issuer does not publish")
        return self._principal(self._claims(token, algorithm, keys))

    def _head(self, token: str) -> tuple[str, str | None]:
        try:
            head = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise BadToken("is not a JWT") from None
        algorithm, kind = head.get("alg"), head.get("typ")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise BadToken("is signed with an algorithm that is not allowed here")
        if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise BadToken("is not an access token")
        if "crit" in head:
            raise BadToken("makes demands that are not known here")
        return algorithm, head.get("kid")

    def _claims(self, token: str, algorithm: str, keys: Sequence[Key]) -> dict[str, Any]:
        bad = BadToken("cannot be verified")
        for key in keys:
            try:
                return jwt.decode(
                    token,
                    key.public,
                    algorithms=[algorithm],
                    issuer=self._issuer,
                    audience=self._audiences,
                    leeway=LEEWAY_SECONDS,
                    options={"require": list(REQUIRED)},
                )
            except jwt.InvalidTokenError as error:
                bad = BadToken(_SAID.get(type(error), "cannot be verified"))
                if not isinstance(error, jwt.InvalidSignatureError):
                    break
            except OverflowError:  # a time without end
                break
        raise bad from None

    def _principal(self, claims: dict[str, Any]) -> Principal:
        subject, client = claims["sub"], claims.get("client_id") or claims.get("azp")
        if not subject or not isinstance(client, str | None):
            raise _unnamed()
        try:
            owner = " ".join(quote(part, safe=":/@") for part in (self._issuer, subject, client) if part)
        except UnicodeEncodeError:
            raise _unnamed() from None
        if len(owner) > MAX_OWNER:
            raise BadToken("has a subject or a client with too long a name")
        return Principal(owner, self._scopes.expand(_granted(claims)))


def _unnamed() -> BadToken:
    return BadToken("does not say who its subject and its client are")


def _granted(claims: dict[str, Any]) -> list[str]:
    """The scopes of a token, as RFC 9068 or as some servers write them."""
    granted = claims.get("scope", claims.get("scp", ""))
    words = granted.split() if isinstance(granted, str) else granted
    return [word for word in words if isinstance(word, str)] if isinstance(words, list) else []
