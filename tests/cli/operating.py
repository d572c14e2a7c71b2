"""Operators' commands in the test's own process, on a database with a task of each kind."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
from typer.testing import CliRunner

from app.cli import cli
from app.domain.task import Claim, Json
from app.errors import PerdureError
from app.storage.database import Database
from app.storage.store import Store
from tests.storage.scene import Scene

STATES = ("queued", "running", "stopping", "parked", "completed", "failed", "cancelled")
NASTY = "\x1b[31mred\x1b]0;title\x07\ttab\nline \u202egnirts\u2028end"
"""What a client may send to move a terminal's cursor, or to break a line."""


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """The tab-separated lines that it printed."""
        return [line.split("\t") for line in self.out.splitlines()]

    @property
    def documents(self) -> list[Any]:
        """The JSON documents that it printed, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(url: str, *arguments: str | UUID, **environment: str) -> Ran:
    """Run a command; an error of ours ends it as it would end the process."""
    clean: dict[str, str | None] = {"DATABASE_URL": url, "PERDURE_LOG_LEVEL": "error", "PERDURE_TEST_RUN": None}
    ran = CliRunner().invoke(cli, [str(argument) for argument in arguments], env=clean | environment)
    if isinstance(ran.exception, PerdureError):
        return Ran(2, ran.stdout, f"perdure: {ran.exception}\n")
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return Ran(ran.exit_code, ran.stdout, ran.stderr)


def make_each(url: str, **kind: Any) -> dict[str, UUID]:
    """A task in each state."""

    async def make(scene: Scene) -> dict[str, UUID]:
        return {state: (await getattr(scene, state)(**kind)).task_id for state in STATES}

    return asyncio.run(_on(url, make))


def make_many(url: str, count: int, tool: str = "bulk") -> list[UUID]:
    """Tasks that wait for a worker."""

    async def make(scene: Scene) -> list[UUID]:
        return [(await scene.queued(tool)).task_id for _ in range(count)]

    return asyncio.run(_on(url, make))


def make_nasty(url: str) -> UUID:
    """A task that failed, all of whose texts are `NASTY`."""

    async def make(scene: Scene) -> UUID:
        claim: Claim = await scene.running(owner=NASTY)
        await scene.store.step(claim, NASTY, Json(json.dumps({"value": NASTY}, ensure_ascii=False)))
        await scene.store.fail(claim, Json(json.dumps({"code": 1, "message": NASTY})), NASTY, internal=NASTY)
        return claim.task_id

    task_id: UUID = asyncio.run(_on(url, make))
    return task_id


def statuses(url: str) -> dict[UUID, str]:
    """What the tables say of each task."""

    async def look(scene: Scene) -> dict[UUID, str]:
        rows = await scene.connection.fetch("SELECT task_id, status FROM perdure.tasks")
        return {row["task_id"]: row["status"] for row in rows}

    return asyncio.run(_on(url, look))


def execute(url: str, *statements: str) -> None:
    """Change the database behind everybody's back."""

    async def do(scene: Scene) -> None:
        for statement in statements:
            await scene.connection.execute(statement)

    asyncio.run(_on(url, do))


async def _on(url: str, what: Any) -> Any:
    connection = await asyncpg.connect(url)
    try:
        async with Database(url, connections=2) as database:
            return await what(Scene(Store(database), connection))
    finally:
        await connection.close(timeout=5)
