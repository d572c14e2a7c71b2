"""tools/list and tools/call (core, "Tools"; Tasks, "Task Creation")."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from app.domain.task import Idempotency, Json, NewTask, Reply, Task, new_task_id
from app.errors import ErrorKind, Refusal
from app.methods.call import Call, carry_through
from app.methods.inline import Inline, Waiting
from app.methods.limits import Limits
from app.methods.local import LocalTools
from app.storage.store import Store
from app.telemetry.metrics import OTHER
from app.telemetry.traces import outgoing
from app.tools.catalogue import Catalogue, Entry
from app.tools.header_params import check_header_params
from app.tools.results import error_result
from app.wire.envelope import dumps, printable
from app.wire.legacy import legacy_result, legacy_tool
from app.wire.revisions import Revision, missing_tasks_capability
from app.wire.server_info import RESULT_META_JSON, signed
from app.wire.tasks import create_result

FRESH_MS = 60_000
"""How long clients may keep the list of tools."""

NAME_CHARACTERS = 128
"""The longest name that a tool can have (core, "Tool Names")."""


class Tools:
    """Lists tools, and turns calls into tasks.

    Args:
        store: where tasks are created.
        catalogue: the tools that are offered.
        local: runs those of them that never become tasks.
        inline: waits for the task of a call that is answered on its request.
        limits: what one principal may have at the same time, and how often it may call.
        scopes: what a principal needs to call any tool, beside what the tool itself asks for.
        private: the list is for those who are let in only, and not for caches that others share.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        local: LocalTools,
        inline: Inline,
        limits: Limits,
        *,
        scopes: Sequence[str] = (),
        private: bool = False,
    ) -> None:
        self._store, self._catalogue, self._local, self._inline = store, catalogue, local, inline
        self._limits, self._scopes, self._cache_scope = limits, tuple(scopes), "private" if private else "public"

    async def list(self, call: Call) -> Json:
        """All tools, by name, in one page."""
        if call.params.get("cursor") is not None:
            raise Refusal(ErrorKind.INVALID_PARAMS, "Invalid params: params.cursor is none that this server gave")
        entries = await self._catalogue.entries()
        legacy = call.context.legacy
        tools = ",".join(dumps(legacy_tool(entry.definition)) if legacy else entry.text for entry in entries)
        return Json(
            f'{{"resultType":"complete","tools":[{tools}],"ttlMs":{FRESH_MS},"cacheScope":"{self._cache_scope}",'
            f'"_meta":{RESULT_META_JSON}}}'
        )

    async def call(self, call: Call) -> Json:
        """Run a tool: a task for it is committed before its handle is returned.

        A client that does not declare the extension gets the same task's outcome on this request. Arguments that do
        not fit the tool's schema are told to the model in a result, and make no task.
        """
        self._limits.call(call.owner)
        entry, arguments = await self._entry(call.params), _arguments(call.params)
        call.principal.require((*self._scopes, *entry.options.scopes))
        strict = call.context.revision is Revision.V2026_07_28
        check_header_params(entry.headers, call.context.parameters, arguments, required=strict)
        if entry.tool is not None and "requestState" not in call.params:
            result = signed(await self._local.run(call, entry.tool, arguments))
        else:
            result = await self._answer(call, entry, arguments)
        return legacy_result(result) if call.context.legacy else result

    def label(self, params: dict[str, Any]) -> str:
        """The name of the tool that is called, for metrics and traces; one that is not listed is as good as any."""
        name = params.get("name")
        return name if isinstance(name, str) and self._catalogue.lists(name) else OTHER

    def stop(self) -> None:
        """From now on requests end because the process does, not because their clients have left."""
        self._inline.stop()

    async def _answer(self, call: Call, entry: Entry, arguments: dict[str, Any]) -> Json:
        try:
            waiting = Waiting(call, entry, arguments, entry.arguments.fitting(arguments))
        except ValueError as misfit:
            return signed(error_result(f"Invalid arguments: {misfit}"))
        options = entry.options
        if "requestState" in call.params:
            with self._limits.inline(call.owner):
                return await self._inline.resume(waiting)
        on_request = options.starts == "request" or not call.context.declares_tasks
        if options.task == "required" and options.starts == "task" and on_request:
            raise missing_tasks_capability()
        await self._limits.task(call.owner)
        if on_request:
            with self._limits.inline(call.owner):
                return await self._inline.create(waiting, _new_task(waiting, Reply.REQUEST))
        task = await self._create(_new_task(waiting, Reply.TASK))
        if options.inline_budget_ms is None:
            return create_result(task)
        return await self._inline.within_budget(task, options.inline_budget_ms / 1000)

    async def _create(self, new: NewTask) -> Task:
        create = self._store.create(new)
        task = await (create if new.idempotency is None else carry_through(create))  # a plain one goes on by itself
        if task.reply is Reply.REQUEST:  # the same call was made before, by a client that could not use a handle
            return await carry_through(self._store.detach_for(task.owner, task.task_id)) or task
        return task

    async def _entry(self, params: dict[str, Any]) -> Entry:
        name = params.get("name")
        if not isinstance(name, str):
            raise Refusal(ErrorKind.INVALID_PARAMS, "Invalid params: params.name must be a string")
        entry = await self._catalogue.find(name)
        if entry is None:
            raise Refusal(ErrorKind.INVALID_PARAMS, f"Unknown tool: {printable(name, NAME_CHARACTERS)}")
        return entry


def _arguments(params: dict[str, Any]) -> dict[str, Any]:
    arguments = params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise Refusal(ErrorKind.INVALID_PARAMS, "Invalid params: params.arguments must be an object")
    return arguments


def _new_task(waiting: Waiting, reply: Reply) -> NewTask:
    call, entry, context = waiting.call, waiting.entry, waiting.call.context
    return NewTask(
        task_id=new_task_id(),
        owner=call.owner,
        tool=entry.name,
        params=Json(f'{{"name":{dumps(entry.name)},"arguments":{waiting.text}}}'),
        capabilities=dumps(context.capabilities),
        policy=entry.policy,
        reply=reply,
        method=call.message.method,
        revision=context.declared,
        trace_context=dumps(trace) if (trace := outgoing(context.trace)) else None,
        idempotency=_idempotency(context.idempotency_key, waiting.arguments),
    )


def _idempotency(key: str | None, arguments: dict[str, Any]) -> Idempotency | None:
    if key is None:
        return None
    asked = json.dumps(arguments, sort_keys=True)
    return Idempotency(*(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (key, asked)))
