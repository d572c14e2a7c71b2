"""Progress notifications on the reply of a request that asked for them (core, "Progress")."""

from __future__ import annotations

from app.domain.task import Task
from app.methods.call import Call
from app.wire.notifications import progress_notification


class Progress:
    """Tells the client of a request how its tool is getting on, if the request carries a progress token.

    The protocol wants each notification's progress to be larger than the last one's: what is not is left out.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._token = call.context.progress_token
        self._told = float("-inf")
        self._message: str | None = None

    async def tell(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report that so much is done."""
        if self._token is None or done <= self._told:
            return
        self._told, self._message = done, message
        await self._call.notify(progress_notification(self._token, done, total, message))

    async def tell_of(self, task: Task) -> None:
        """Report what has changed of a task since the last time: its progress, or only its status message.

        A tool that gives messages without progress is counted: one more with each. How a task ended is no progress.
        """
        if task.status.terminal:
            return
        if task.progress is not None:
            await self.tell(task.progress, task.progress_total, task.status_message)
        elif task.status_message is not None and task.status_message != self._message:
            await self.tell(max(self._told, 0) + 1, None, task.status_message)
