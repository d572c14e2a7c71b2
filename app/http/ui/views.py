"""The pages that only show."""

from __future__ import annotations

from aiohttp import web

from app.domain.task import Status
from app.http.ui.desk import DESK
from app.http.ui.filters import AGES, Filters
from app.http.ui.looks import look
from app.http.ui.rendering import ROOT, page
from app.storage.listing import Activity

SAID = {
    "answered": "The answer was recorded, and the task goes on.",
    "late": "Nothing was recorded: the question was answered already, or the task has ended.",
    "cancelled": "The task was cancelled.",
    "stopping": "The worker was told to stop; the task ends soon.",
    "ended": "There was nothing to do: the task is not in the state for it any more.",
    "retried": "This is the new task, made from the same request.",
}
"""What came of what was done, by the word that the address carries to the next page."""


async def show(request: web.Request) -> web.StreamResponse:
    """A page that changes by itself."""
    said = request.query.get("said", "")
    seen = await look(request.app[DESK].operator, request.path.removeprefix(ROOT), request.query)
    values = dict(seen.values) | {
        "said": SAID.get(said),
        "to_inbox": said in ("answered", "late"),
        "seen": seen.digest,
        "states": [(each.value, each.value.replace("_", " ")) for each in Status],
        "activities": [(each.value, each.value) for each in Activity],
        "ages": AGES,
    }
    return page(request, seen.template, **values)


async def home(_: web.Request) -> web.StreamResponse:
    """The root without its slash."""
    raise web.HTTPSeeOther(f"{ROOT}/")


async def find(request: web.Request) -> web.StreamResponse:
    """From an id that was typed to its task."""
    task_id = Filters.read({"after": request.query.get("id", "").strip()}).after
    if task_id is None or await request.app[DESK].operator.state(task_id) is None:
        raise web.HTTPNotFound
    raise web.HTTPSeeOther(f"{ROOT}/tasks/{task_id}")
