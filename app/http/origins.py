"""What a browser asks before a page of another origin may call, and may read what comes back (CORS).

Which origins those are is the guard's to say.
"""

from __future__ import annotations

import re

from aiohttp import hdrs, web

from app.wire.headers import Head

PREFLIGHT_SECONDS = "600"
"""How long a browser may remember the answer."""

SERVER = "Perdure"
"""What the software is made of, and in which versions, is nobody's business."""

EXPOSED = "WWW-Authenticate, Retry-After"
"""Headers of a reply that a page may read beside the usual ones."""

_NAMES = re.compile(r"[A-Za-z0-9_, -]{0,2048}")


def preflight(request: web.BaseRequest) -> web.Response | None:
    """The answer to a browser that asks whether a page may send its request; None for any other request."""
    if request.method != hdrs.METH_OPTIONS or hdrs.ACCESS_CONTROL_REQUEST_METHOD not in request.headers:
        return None
    names = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "")
    headers = {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: hdrs.METH_POST,
        hdrs.ACCESS_CONTROL_MAX_AGE: PREFLIGHT_SECONDS,
        hdrs.SERVER: SERVER,
    }
    if _NAMES.fullmatch(names):  # arguments are mirrored into headers whose names only tools know
        headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = names
    return web.Response(status=204, headers=headers)


async def name_server(_: web.BaseRequest, response: web.StreamResponse) -> None:
    """Say who answers, and no more."""
    response.headers[hdrs.SERVER] = SERVER


def let_read(head: Head, response: web.StreamResponse) -> None:
    """Let the page that asked read what comes back; never with a cookie's rights."""
    origin = head.get("origin")
    if origin is not None and hdrs.ACCESS_CONTROL_ALLOW_ORIGIN not in response.headers:
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = EXPOSED
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)
