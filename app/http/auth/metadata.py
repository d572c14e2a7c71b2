"""The document that tells clients which authorization server to go to (RFC 9728)."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from aiohttp import web

from app.http.origins import SERVER
from app.wire.envelope import dumps

WELL_KNOWN = "/.well-known/oauth-protected-resource"


class ResourceMetadata:
    """Describes the endpoint as a protected resource.

    Args:
        resource: the URL that clients know the endpoint by.
        issuer: the authorization server.
        scopes: those that clients are told of.
    """

    def __init__(self, resource: str, issuer: str, scopes: Sequence[str]) -> None:
        parts = urlsplit(resource)
        self._path = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{self._path}"
        document = {
            "resource": resource,
            "authorization_servers": [issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Perdure",
        } | ({"scopes_supported": list(scopes)} if scopes else {})
        self._body = dumps(document).encode()

    def answer(self, request: web.BaseRequest) -> web.Response | None:
        """The document, at the endpoint's own place and at the root's, for anyone; None for a request for anything
        else."""
        if request.path not in (WELL_KNOWN + self._path, WELL_KNOWN):
            return None
        headers = {"Access-Control-Allow-Origin": "*", "Server": SERVER}
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, headers=headers | {"Allow": "GET, HEAD"})
        headers["Cache-Control"] = "public, max-age=300"
        return web.Response(body=self._body, content_type="application/json", headers=headers)
