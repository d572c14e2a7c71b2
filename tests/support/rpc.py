"""A client that speaks the protocol in bytes over HTTP, and trusts nothing that comes back."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import aiohttp

from tests.support.oracle import Streamed, check_reply, check_stream

PUBLISHED = "2026-07-28"
DRAFT = "DRAFT-2026-v1"

TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
_NAMED_BY = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}


@dataclass(frozen=True)
class Reply:
    """An HTTP response.

    Attributes:
        message: the JSON-RPC response; `{}` for an empty body.
        notifications: what came before it on a stream, in order.
        keepalives: how many comments came on a stream.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    message: dict[str, Any]
    notifications: list[dict[str, Any]] = field(default_factory=list)
    keepalives: int = 0

    @property
    def streamed(self) -> bool:
        """True where the reply came as a stream of events."""
        return _is_stream(self.headers)

    @property
    def result(self) -> dict[str, Any]:
        """The result; there must be one."""
        assert self.status == 200, self.body
        result: dict[str, Any] = self.message["result"]
        return result

    @property
    def error(self) -> dict[str, Any]:
        """The error; there must be one."""
        error: dict[str, Any] = self.message["error"]
        return error

    @property
    def refusal(self) -> tuple[int, int, str]:
        """HTTP status, code and message of the error."""
        return self.status, self.error["code"], self.error["message"]


@dataclass(frozen=True)
class Client:
    """Sends requests; every reply is checked against the protocol before a test sees it.

    Attributes:
        version: the protocol version to declare, with all headers that it asks for; None to declare nothing.
        capabilities: what each request declares.
        token: what says who sends the requests that `rpc` and `request` make.
    """

    session: aiohttp.ClientSession
    url: str
    version: str | None = None
    capabilities: dict[str, Any] | None = None
    token: str | None = None

    def with_(self, **changes: Any) -> Self:
        """Another client on the same connections."""
        return replace(self, **changes)

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None, *, unread: bool = False) -> Reply:
        """Send bytes, and check what comes back.

        Args:
            unread: the server turns it away before it reads the body, and so without the request's id.
        """
        async with self.sending(body, headers) as response:
            return await self.receive(response, b"" if unread else body, headers)

    def sending(
        self, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send bytes, for a test that looks at a stream while it is open."""
        return self.session.post(self.url, data=io.BytesIO(body), headers=_usual(headers))

    async def receive(
        self,
        response: aiohttp.ClientResponse,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        received: bytes = b"",
    ) -> Reply:
        """Read to the end what comes back, and check it.

        Args:
            body: what was sent, with its headers.
            received: what has been read of the stream before.
        """
        received += await response.read()
        if _is_stream(response.headers):
            assert response.status == 200
            streamed = check_stream(body, received, _usual(headers))
        else:
            assert not received or response.content_type == "application/json"
            streamed = Streamed(check_reply(body, response.status, received, _usual(headers)), [], 0)
        return Reply(
            response.status, response.headers, received, streamed.message, streamed.notifications, streamed.keepalives
        )

    async def rpc(self, method: str, params: dict[str, Any] | None = None, *, request_id: str | int = 1) -> Reply:
        """Send a request as this client would."""
        return await self.post(*self.request(method, params or {}, request_id=request_id))

    def request(
        self, method: str, params: dict[str, Any], *, request_id: str | int = 1
    ) -> tuple[bytes, dict[str, str]]:
        """Body and headers of a request as this client would send them."""
        if meta := self._meta():
            params = params | {"_meta": meta | params.get("_meta", {})}
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        bearer = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return json.dumps(message).encode(), self._headers(method, params) | bearer

    async def call(self, tool: str, /, **arguments: Any) -> Reply:
        """Call a tool."""
        return await self.rpc("tools/call", {"name": tool, "arguments": arguments})

    def _meta(self) -> dict[str, Any]:
        meta: dict[str, Any] = {}
        if self.version is not None:
            meta["io.modelcontextprotocol/protocolVersion"] = self.version
        if self.capabilities is not None or self.version is not None:
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities or {}
        return meta

    def _headers(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        if self.version is None:
            return {}
        headers = {"MCP-Protocol-Version": self.version, "Mcp-Method": method}
        name = params.get(_NAMED_BY.get(method, ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = _encoded(name)
        return headers


def _usual(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **(headers or {})}


def _is_stream(headers: Mapping[str, str]) -> bool:
    return headers.get("Content-Type") == "text/event-stream"


def _encoded(value: str) -> str:
    """A header's value (core, "Value Encoding")."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="
