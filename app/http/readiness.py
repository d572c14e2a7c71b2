"""Whether a process should be given work, and if not, why: a list of checks, each with a name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from app.storage import migrate
from app.storage.database import FAULTS
from app.storage.health import Health
from app.storage.listener import Listener

log = structlog.get_logger(__name__)

CHECK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class State:
    """What a check found, in a word or two that tell nothing of the inside."""

    ok: bool
    says: str


Check = Callable[[], Awaitable[State]]


async def _starting() -> State:
    return State(False, "starting")


async def _stopping() -> State:
    return State(False, "stopping")


class Readiness:
    """The checks of a process. Until it has started, the only one is that it has not.

    Args:
        seconds: how long a check may take; one that takes longer has failed.
    """

    def __init__(self, seconds: float = CHECK_SECONDS) -> None:
        self._checks: Mapping[str, Check] = {"start": _starting}
        self._seconds = seconds

    def started(self, checks: Mapping[str, Check]) -> None:
        """From now on these decide."""
        self._checks = dict(checks)

    def stopping(self) -> None:
        """From now on it is not ready: what the checks look at goes away."""
        self._checks = {"stop": _stopping}

    async def look(self) -> tuple[bool, dict[str, Any]]:
        """Whether it is ready, and that as JSON, with what each check found."""
        checks = self._checks
        states = dict(zip(checks, await asyncio.gather(*map(self._state, checks.values())), strict=True))
        ready = all(state.ok for state in states.values())
        shown = {name: {"ok": state.ok, "state": state.says} for name, state in states.items()}
        return ready, {"ready": ready, "checks": shown}

    async def _state(self, check: Check) -> State:
        try:
            async with asyncio.timeout(self._seconds):
                return await check()
        except TimeoutError:
            return State(False, "no answer in time")
        except Exception:
            log.exception("a readiness check failed")
            return State(False, "unknown")


def shared_checks(health: Health, listener: Listener | None) -> dict[str, Check]:
    """What every process needs: a database, at this release's schema or a newer one, and a way to hear of changes.

    Args:
        listener: None where changes are found by polling on purpose.
    """
    heard = False

    async def database() -> State:
        await health.revision()
        return State(True, "reachable")

    async def schema() -> State:
        standing = migrate.standing(await health.revision())
        return State(standing in (migrate.Standing.HEAD, migrate.Standing.NEWER), standing.value)

    async def hears() -> State:
        # One that never heard is set up wrongly, and a rollout should end there. One that has lost its connection goes
        # on by polling: to take all processes away for that would turn a delay into an outage.
        nonlocal heard
        if listener is None:
            return State(True, "polling")
        heard = heard or listener.hearing
        return State(heard, "hearing" if listener.hearing else "not hearing; polling")

    return {"database": _reached(database), "schema": _reached(schema), "listener": hears}


def accepting(stopped: asyncio.Event) -> Check:
    """Whether an API process takes requests."""

    async def state() -> State:
        return State(False, "stopping") if stopped.is_set() else State(True, "accepting")

    return state


def claiming(obstacle: Callable[[], str | None]) -> Check:
    """Whether a worker claims tasks."""

    async def state() -> State:
        reason = obstacle()
        return State(reason is None, reason or "claiming")

    return state


def _reached(check: Check) -> Check:
    async def state() -> State:
        try:
            return await check()
        except FAULTS:
            return State(False, "unreachable")

    return state
