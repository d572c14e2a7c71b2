"""Tools that no task is made for: they run in this process, for the one caller that waits."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import structlog

from app.domain.task import Json
from app.errors import ErrorKind, InvalidArguments, ProtocolError, Refusal, ToolError, UnusableResult
from app.methods.call import Call
from app.methods.progress import Progress
from app.tools.calling import alone, plainly
from app.tools.context import SyncToolContext, ToolContext
from app.tools.registry import Tool
from app.tools.results import error_result

log = structlog.get_logger(__name__)


class LocalTools:
    """Runs `never` tools: `async def` on the loop, `def` in threads of their own.

    Args:
        threads: how many `def` tools run at once; further ones wait.
    """

    def __init__(self, threads: int = 16) -> None:
        # Not the loop's own executor: that one resolves names for the database's connections.
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tool")

    async def run(self, call: Call, tool: Tool, arguments: dict[str, Any]) -> Json:
        """Run a tool with these arguments, if they fit, and return its CallToolResult. Its caller's disconnect cancels
        an `async def` tool.

        Raises:
            ProtocolError: the tool's own.
            Refusal: INTERNAL, if it failed in any other way; the log has the reason.
        """
        try:
            return tool.result(await self._value(call, tool, tool.bind(arguments)))
        except asyncio.CancelledError as cancelled:
            if _is_cancelled():
                raise
            error: BaseException = cancelled
        except (Exception, SystemExit) as raised:  # noqa: BLE001  looked at below
            error = raised
        return _told(tool, alone(error))

    def close(self) -> None:
        """Start no further tool in a thread; one that runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _value(self, call: Call, tool: Tool, arguments: dict[str, Any]) -> Any:
        if tool.takes_context is not None:
            kind, report = (ToolContext if tool.is_async else SyncToolContext), Progress(call).tell
            arguments[tool.takes_context] = kind(tool.name, call.owner, call.context.capabilities, None, report)
        if tool.is_async:
            return await tool.fn(**arguments)
        within = copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self._threads, within, plainly, tool.fn, arguments)


def _told(tool: Tool, error: BaseException) -> Json:
    """What the caller is told of what a tool raised."""
    match error:
        case InvalidArguments():
            return error_result(f"Invalid arguments: {error}")
        case ToolError():
            return error_result(str(error))
        case ProtocolError():
            raise error
        case UnusableResult():
            log.error("tool returned what cannot be sent", tool=tool.name, reason=str(error))
            raise Refusal(ErrorKind.INTERNAL, str(error))
        case _:
            log.error("tool failed", tool=tool.name, exc_info=error)
            raise Refusal(ErrorKind.INTERNAL, "The tool failed with an internal error")


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
