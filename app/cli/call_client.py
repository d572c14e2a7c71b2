"""A client of the protocol over HTTP, revision 2026-07-28, as `perdure call` needs it.

It declares the Tasks extension, and that it can ask a user with forms and with URLs. The token goes into one header,
and into no message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from yarl import URL

from app.errors import PerdureError
from app.version import __version__
from app.wire.envelope import dumps, printable
from app.wire.headers import METHOD_HEADER, NAME_HEADER, PARAMETER_PREFIX, VERSION_HEADER
from app.wire.revisions import TASKS_EXTENSION, Revision

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": Revision.V2026_07_28.value,
    "io.modelcontextprotocol/clientInfo": {"name": "perdure-call", "version": __version__},
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {TASKS_EXTENSION: {}},
        "elicitation": {"form": {}, "url": {}},
    },
}
POLL_SECONDS = 40.0
"""How long a reply to anything but a call may take; the service itself waits 30 s for its database."""

UNKNOWN_CALLER = 401

_MAX_LINE = 64 * 1024 * 1024
_PASSING = {429, 502, 503, 504}

Progress = Callable[[dict[str, Any]], None]
"""Takes the params of a progress notification."""


class CallError(PerdureError):
    """The service could not be asked, or its answer is none; the message says why."""


class Unreachable(CallError):
    """The service could not be reached, or not now."""


class ServiceError(CallError):
    """The service answered with a JSON-RPC error.

    Attributes:
        error: its `code`, `message` and perhaps `data`.
    """

    def __init__(self, method: str, error: dict[str, Any]) -> None:
        says = printable(str(error.get("message")), 500)
        super().__init__(f"{method} was answered with the error {error.get('code')}: {says}")
        self.error = error


class Client:
    """Sends requests, one after the other.

    Args:
        session: where they are sent.
        url: of the service.
        token: what says who is calling, None for nobody.

    Raises:
        CallError: the URL or the token is none.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str | None = None) -> None:
        self._session = session
        self._url = _url(url)
        self._token = _token(token)
        self._id = 0

    @property
    def server(self) -> str:
        """The service's host and port, as a user should see them."""
        return self._url.authority

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        mirrored: Mapping[str, str] | None = None,
        on_progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result.

        Args:
            mirrored: arguments that the headers repeat, by the header's name after `Mcp-Param-`.
            on_progress: asks for progress notifications, and gets them; the reply may then take any time.

        Raises:
            ServiceError: the answer is a JSON-RPC error.
            Unreachable: there was no answer, or one that says to come back later.
            CallError: the answer is no answer.
        """
        self._id += 1
        meta = META if on_progress is None else META | {"progressToken": self._id}
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params | {"_meta": meta}}
        sent = self._headers(method, params)
        sent |= {f"{PARAMETER_PREFIX}{name}": encode_header(text) for name, text in (mirrored or {}).items()}
        timeout = aiohttp.ClientTimeout(total=None if on_progress else POLL_SECONDS, sock_connect=10)
        try:
            async with self._session.post(
                self._url, data=dumps(message).encode(), headers=sent, timeout=timeout, allow_redirects=False
            ) as response:
                reply = await _reply(response, on_progress)
        except (aiohttp.ClientError, TimeoutError) as fault:
            raise Unreachable(f"The service at {self.server} cannot be reached{_why(fault)}") from None
        return _result(method, reply)

    def _headers(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            VERSION_HEADER: Revision.V2026_07_28.value,
            METHOD_HEADER: method,
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        name = params.get("name", params.get("taskId"))
        if isinstance(name, str):
            headers[NAME_HEADER] = encode_header(name)
        return headers


@asynccontextmanager
async def connected(url: str, token: str | None) -> AsyncIterator[Client]:
    """A client that is ready to send.

    Raises:
        CallError: the URL or the token is none.
    """
    # A connection is not kept: while a user thinks nobody looks whether it still stands.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=_MAX_LINE) as session:
        yield Client(session, url, token)


def encode_header(text: str) -> str:
    """A header's value that stands for this text (core, "Value Encoding")."""
    plain = text.isascii() and text.replace("\t", " ").isprintable() and text == text.strip(" \t")
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode()}?="


async def _reply(response: aiohttp.ClientResponse, on_progress: Progress | None) -> dict[str, Any]:
    """The one response among what comes back."""
    if response.status in _PASSING:
        raise Unreachable(f"The service cannot answer now (HTTP {response.status}){await _said(response)}")
    if response.status == UNKNOWN_CALLER:
        raise CallError(_refused(response.status, await _said(response)))
    if response.content_type == "text/event-stream":
        async for event in _events(response):
            message = _message(event)
            if "method" not in message:
                return message
            if on_progress is not None and message["method"] == "notifications/progress":
                on_progress(message.get("params", {}))
        raise Unreachable("The service ended its answer before the result came")
    if response.content_type != "application/json":
        raise CallError(_no_protocol(response.status))
    return _message(await response.read(), response.status)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of each event of a stream."""
    data: list[bytes] = []
    async for line in response.content:
        text = line.rstrip(b"\r\n")
        if text.startswith(b"data:"):
            data.append(text[5:].removeprefix(b" "))
        elif not text and data:
            yield b"\n".join(data)
            data.clear()


def _message(body: bytes, status: int = 200) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise CallError(_no_protocol(status))
    return message


def _result(method: str, reply: dict[str, Any]) -> dict[str, Any]:
    result, error = reply.get("result"), reply.get("error")
    if isinstance(error, dict):
        raise ServiceError(method, error)
    if not isinstance(result, dict):
        raise CallError(f"{method} was answered with neither a result nor an error")
    return result


def _no_protocol(status: int) -> str:
    if status in (UNKNOWN_CALLER, 403):
        return _refused(status)
    return f"The answer (HTTP {status}) is not one of the protocol: --url takes the address that ends in /mcp"


def _refused(status: int, said: str = "") -> str:
    return f"The service refuses the request (HTTP {status}){said}: --token, or PERDURE_TOKEN, says who is calling"


async def _said(response: aiohttp.ClientResponse) -> str:
    """The message of an error that a response carries, if it does."""
    if response.content_type != "application/json":
        return ""
    try:
        error = _message(await response.read()).get("error")
    except CallError:
        return ""
    message = error.get("message") if isinstance(error, dict) else None
    return f", {printable(message, 500)}" if isinstance(message, str) else ""


def _why(fault: Exception) -> str:
    if isinstance(fault, TimeoutError):
        return ": it does not answer in time"
    reason = fault.strerror if isinstance(fault, aiohttp.ClientConnectorError) else None
    return f": {printable(reason)}" if reason else ""


def _url(text: str) -> URL:
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise CallError("--url takes the address of a service, such as http://127.0.0.1:8765/mcp")
    if url.user is not None or url.password is not None:
        raise CallError("--url takes no user and no password: --token says who is calling")
    return url


def _token(text: str | None) -> str | None:
    if text and not (text.isascii() and text.isprintable() and " " not in text):
        raise CallError("The token holds a character that no token has")
    return text or None
