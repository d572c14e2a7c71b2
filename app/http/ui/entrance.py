"""The way in: logging in and out, and what stands before every other page.

A request that changes something comes from one of our own pages: it has their `Origin`, its cookie is never sent along
from other sites, and it carries what only a page of the same session holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from app.http.ui.rendering import ROOT, TOKEN, notice, page
from app.http.ui.sessions import Sessions, Tries

log = structlog.get_logger(__name__)

COOKIE = "perdure_ui"
CHANGES = frozenset({"POST"})
MAX_FIELDS = 1000
Form = Mapping[str, list[str]]
FORM = web.RequestKey("form", Mapping[str, list[str]])
"""What was sent."""

LEFT = web.RequestKey("left", float)
"""For how many seconds the session is still good."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: with that, browsers hide a page's Origin from its own server too.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Entrance:
    """Lets in who knows the password.

    Args:
        sessions: knows who has logged in.
        tries: counts wrong passwords.
    """

    def __init__(self, sessions: Sessions, tries: Tries) -> None:
        self._sessions, self._tries = sessions, tries

    def routes(self) -> list[web.RouteDef]:
        """Where to log in and out."""
        return [
            web.get("/login", self._show),
            web.post("/login", self._log_in),
            web.post("/logout", self._log_out),
        ]

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request through that may pass; what it sends is read on the way."""
        if request.method in CHANGES:
            if not _is_own(request):
                words = "This came from another page. Behind a proxy, let it pass the Host header on."
                return notice(request, 403, "Refused", words)
            request[FORM] = await _read(request)
        open_to_all = request.path == f"{ROOT}/login" or request.path.startswith(f"{ROOT}/static/")
        return await (handler(request) if open_to_all else self._inside(request, handler))

    async def _inside(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        cookie = request.cookies.get(COOKIE, "")
        left = self._sessions.left(cookie)
        changes = request.method in CHANGES
        if left:
            request[LEFT], request[TOKEN] = left, self._sessions.token(cookie)
            if not changes or self._sessions.is_token(cookie, request[FORM].get("token", [""])[0]):
                return await handler(request)
        elif not changes:
            if request.path == f"{ROOT}/events":
                raise web.HTTPUnauthorized
            if request.headers.get("Sec-Fetch-Site") == "cross-site":
                return page(request, "hop.html", target=request.path_qs)
            raise web.HTTPSeeOther(f"{ROOT}/login?next={quote(request.path_qs)}")
        return _again(request, logged_in=bool(left))

    async def _show(self, request: web.Request) -> web.StreamResponse:
        return page(request, "login.html", next=_next(request.query.get("next", "")), flaw=None)

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        form, address = request[FORM], request.remote
        target = _next(form.get("next", [""])[0])
        if pause := self._tries.pause(address):
            words = "Too many wrong passwords. Try again in a few minutes."
            answer = page(request, "login.html", status=429, next=target, flaw=words)
            answer.headers["Retry-After"] = str(int(pause) + 1)
            return answer
        if not self._sessions.is_password(form.get("password", [""])[0]):
            self._tries.wrong(address)
            log.warning("a wrong password for the operators' pages", address=address)
            return page(request, "login.html", status=401, next=target, flaw="That is not the password.")
        log.info("an operator logged in to the pages", address=address)
        answer = web.HTTPSeeOther(target)
        secure = request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
        answer.set_cookie(
            COOKIE,
            self._sessions.open(),
            max_age=self._sessions.seconds,
            path=ROOT,
            httponly=True,
            samesite="Strict",
            secure=secure,
        )
        raise answer

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        answer = web.HTTPSeeOther(f"{ROOT}/login")
        answer.del_cookie(COOKIE, path=ROOT)
        raise answer


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """What every answer says to the browser."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


def _again(request: web.Request, *, logged_in: bool) -> web.Response:
    """Nothing that was typed is lost: it can be sent again, by a click."""
    sent = [(name, value) for name, values in request[FORM].items() if name != "token" for value in values]
    status = 403 if logged_in else 401
    return page(request, "again.html", status=status, sent=sent, logged_in=logged_in, target=request.path_qs)


def _is_own(request: web.Request) -> bool:
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return False
    host = request.host.lower()
    return request.headers.get("Origin", "").lower() in (f"http://{host}", f"https://{host}")


async def _read(request: web.Request) -> Form:
    if request.content_type != "application/x-www-form-urlencoded":
        raise web.HTTPUnsupportedMediaType
    form: dict[str, list[str]] = {}
    try:
        body = (await request.read()).decode("ascii")
        for name, value in parse_qsl(body, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS):
            form.setdefault(name, []).append(value.replace("\r\n", "\n"))
    except ValueError:
        raise web.HTTPBadRequest from None
    return form


def _next(text: str) -> str:
    """Where to go after logging in: one of our own pages."""
    own = (
        text.startswith(f"{ROOT}/") and not any(c in text for c in "\\\r\n\t\0") and "//" not in text.partition("?")[0]
    )
    return text if own else f"{ROOT}/"
