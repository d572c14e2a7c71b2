"""tools/list and tools/call (core, "Tools"; Tasks, "Task Creation")."""

from __future__ import annotations

import json
from typing import Any

from app.domain.task import Json, NewTask, new_task_id
from app.errors import ErrorKind, Refusal
from app.methods.call import Call, carry_through
from app.methods.local import LocalTools
from app.storage.store import Store
from app.tools.catalogue import Catalogue, Entry
from app.tools.results import error_result
from app.wire.envelope import dumps, printable
from app.wire.revisions import missing_tasks_capability
from app.wire.server_info import RESULT_META, RESULT_META_JSON
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
    """

    def __init__(self, store: Store, catalogue: Catalogue, local: LocalTools) -> None:
        self._store, self._catalogue, self._local = store, catalogue, local

    async def list(self, call: Call) -> Json:
        """All tools, by name, in one page."""
        if call.params.get("cursor") is not None:
            raise Refusal(ErrorKind.INVALID_PARAMS, "Invalid params: params.cursor is none that this server gave")
        tools = ",".join(entry.text for entry in await self._catalogue.entries())
        return Json(
            f'{{"resultType":"complete","tools":[{tools}],"ttlMs":{FRESH_MS},"cacheScope":"public",'
            f'"_meta":{RESULT_META_JSON}}}'
        )

    async def call(self, call: Call) -> Json:
        """Run a tool: a task for it is committed before its handle is returned.

        Arguments that do not fit the tool's schema are told to the model in a result, and make no task.
        """
        entry, arguments = await self._entry(call.params), _arguments(call.params)
        flaw = entry.arguments.check(arguments)
        if flaw is not None:
            return _signed(error_result(f"Invalid arguments: {flaw}"))
        if entry.tool is not None:
            return _signed(await self._local.run(call, entry.tool, arguments))
        if not call.context.declares_tasks:
            raise missing_tasks_capability()
        return create_result(await carry_through(self._store.create(_new_task(call, entry, arguments))))

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


def _signed(result: Json) -> Json:
    """A tool's result with this server's name in its `_meta` (core, "Per-response protocol fields")."""
    if '"_meta":' in result:
        value = json.loads(result)
        if "_meta" in value:
            return dumps(value | {"_meta": RESULT_META | value["_meta"]})
    return Json(f'{result[:-1]},"_meta":{RESULT_META_JSON}}}')


def _new_task(call: Call, entry: Entry, arguments: dict[str, Any]) -> NewTask:
    context = call.context
    return NewTask(
        task_id=new_task_id(),
        owner=call.owner,
        tool=entry.name,
        params=dumps({"name": entry.name, "arguments": arguments}),
        capabilities=dumps(context.capabilities),
        policy=entry.options.to_policy(),
        method=call.message.method,
        revision=context.declared,
        trace_context=dumps(context.trace) if context.trace else None,
    )
