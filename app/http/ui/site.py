"""The pages, put together: one application that lives under /ui on the operators' port."""

from __future__ import annotations

import asyncpg
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from app.errors import StoreUnavailable
from app.http.ui import actions, views
from app.http.ui.desk import DESK, Desk
from app.http.ui.entrance import Entrance, add_headers
from app.http.ui.live import Live
from app.http.ui.rendering import notice, static
from app.http.ui.sessions import Sessions, Tries

AWAY = (StoreUnavailable, TimeoutError, OSError, asyncpg.InterfaceError)
"""The last is for a pool that has just been closed."""

log = structlog.get_logger(__name__)

_WORDS = {
    404: ("Not here", "There is no such page, or no such task. A task that ended is kept for a while only."),
    405: ("Not here", "This page takes no such request."),
    413: ("Too large", "This is more than a page takes. Shorten it, or answer with the command line."),
}
_SLOW = (
    "The database is away or takes too long. Try again; where it is a list of tasks, choose how old they may be or "
    "which state they are in."
)


class Site:
    """The pages.

    Attributes:
        desk: what they work with while the process serves.
        app: answers the requests.

    Args:
        password: what operators log in with.
    """

    def __init__(self, password: str, *, sessions: Sessions | None = None, tries: Tries | None = None) -> None:
        entrance = Entrance(sessions or Sessions(password), tries or Tries())
        self.desk = Desk()
        self.app = web.Application(middlewares=[_told, entrance.check])
        self.app[DESK] = self.desk
        self.app.add_routes(entrance.routes())
        self.app.add_routes(_routes())
        self.app.on_response_prepare.append(add_headers)
        self.app.on_shutdown.append(self._close)

    async def _close(self, _: web.Application) -> None:
        self.desk.closing.set()


def _routes() -> list[web.RouteDef]:
    task = "/tasks/{task_id}"
    action = task + "/{action:cancel|retry}"
    question = "/inbox/{task_id}"
    return [
        web.get("", views.home),
        web.get("/", views.show),
        web.get("/tasks", views.show),
        web.get(task, views.show),
        web.get("/inbox", views.show),
        web.get("/find", views.find),
        web.get(action, actions.confirm),
        web.post(action, actions.act),
        web.get(question, actions.ask),
        web.post(question, actions.answer),
        web.get("/events", Live().stream),
        web.get("/static/{name}", static),
    ]


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What went wrong, as a page that tells nothing of the inside."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        title, words = _WORDS.get(error.status, ("Not possible", "This request cannot be served."))
        return notice(request, error.status, title, words)
    except AWAY:
        return notice(request, 503, "Not now", _SLOW)
    except Exception:
        log.exception("a page for operators failed")
        return notice(request, 500, "This failed", "The log of the process says why.")
