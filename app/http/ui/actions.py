"""What operators do on the pages: answer, cancel, retry. Each is a form of its own, and ends at another page."""

from __future__ import annotations

from urllib.parse import urlencode
from uuid import UUID

import structlog
from aiohttp import web

from app.domain.task import Question, TaskState
from app.http.ui.desk import DESK
from app.http.ui.entrance import FORM
from app.http.ui.looks import read_id
from app.http.ui.questions import Asking, Filled
from app.http.ui.rendering import ROOT, page
from app.methods.call import carry_through

log = structlog.get_logger(__name__)


async def ask(request: web.Request) -> web.StreamResponse:
    """The form of a question."""
    state, question = await _question(request)
    if question is None:
        raise _gone(state.task.task_id, "late")
    asking = Asking.read(question.request)
    return _form(request, state, question, asking, asking.empty())


async def answer(request: web.Request) -> web.StreamResponse:
    """Record what was filled in, as the task's owner would."""
    state, question = await _question(request)
    if question is None:
        raise _gone(state.task.task_id, "late")
    asking = Asking.read(question.request)
    given = asking.response(question, request[FORM])
    if isinstance(given, Filled):
        return _form(request, state, question, asking, given)
    operator = request.app[DESK].operator
    recorded = await carry_through(operator.answer(state.task.task_id, {question.key: given}))
    if recorded is None:
        raise _gone(state.task.task_id, "late")
    log.info("answered by operator", tool=recorded.tool)
    log.debug("answered by operator", task_id=str(recorded.task_id))
    raise _gone(state.task.task_id, "answered")


async def confirm(request: web.Request) -> web.StreamResponse:
    """Ask once more, before a task is cancelled or made again."""
    state = await _state(request)
    action = request.match_info["action"]
    if (action == "cancel") is state.task.status.terminal:
        raise _gone(state.task.task_id, "ended")
    return page(request, "confirm.html", task=state.task, action=action)


async def act(request: web.Request) -> web.StreamResponse:
    """Do it."""
    task_id = read_id(request.match_info["task_id"])
    await _state(request)
    if request.match_info["action"] == "retry":
        raise await carry_through(_retry(request, task_id))
    raise await carry_through(_cancel(request, task_id))


async def _cancel(request: web.Request, task_id: UUID) -> web.HTTPSeeOther:
    async for tasks in request.app[DESK].operator.cancel([task_id]):
        for task in tasks:
            log.info("cancelled by operator", tool=task.tool)
            return _gone(task_id, "cancelled" if task.status.terminal else "stopping")
    return _gone(task_id, "ended")


async def _retry(request: web.Request, task_id: UUID) -> web.HTTPSeeOther:
    async for made in request.app[DESK].operator.retry([task_id]):
        for retried in made:
            log.info("retried by operator", tool=retried.new.tool)
            return _gone(retried.new.task_id, "retried")
    return _gone(task_id, "ended")


async def _state(request: web.Request) -> TaskState:
    state = await request.app[DESK].operator.state(read_id(request.match_info["task_id"]))
    if state is None:
        raise web.HTTPNotFound
    return state


async def _question(request: web.Request) -> tuple[TaskState, Question | None]:
    state, key = await _state(request), request.query.get("key", "")
    return state, next((question for question in state.questions if question.key == key), None)


def _form(request: web.Request, state: TaskState, question: Question, asking: Asking, filled: Filled) -> web.Response:
    flawed = bool(filled.flaw)
    values = {"task": state.task, "question": question, "asking": asking, "filled": filled}
    return page(request, "question.html", status=422 if flawed else 200, **values)


def _gone(task_id: UUID, said: str) -> web.HTTPSeeOther:
    return web.HTTPSeeOther(f"{ROOT}/tasks/{task_id}?{urlencode({'said': said})}")
