"""The tools of the fault run: whatever they do can be counted from outside.

A plain step's effect is a line in a journal, and so are the begin and the end of each attempt: a file that all workers
append to, since it must also take what happens while the database is away. A transaction's effect is a row. Its clock
is the machine's, and so the database's too.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app import Accepted, ProtocolError, SyncToolContext, ToolContext, ToolError, tool

JOURNAL = "FAULTS_JOURNAL"
"""The environment variable with the journal's path."""

CREATE_WRITTEN = """
CREATE TABLE public.written (
    task_id text NOT NULL, step text NOT NULL, epoch integer NOT NULL, run text NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp())"""
_WRITE = text("INSERT INTO public.written (task_id, step, epoch, run) VALUES (:task, :step, :epoch, :run)")

FORM = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
BROKEN_PAPER = (4711, "Out of paper", {"tray": 2})
TOLD = "The printer is on fire"


class Done(BaseModel):
    """What every tool but `quick` returns.

    Attributes:
        ref: what the client called it.
        values: what each step or question came to, in order.
    """

    ref: str
    values: list[str]


@tool
async def quick(ref: str) -> str:
    """Do nothing."""
    return ref


@tool
async def steps(ctx: ToolContext, ref: str, count: int, pause: float) -> Done:
    """Have effects, by turns as plain steps and as transactions."""
    with _attempt(ctx):
        values = []
        for number in range(count):
            values.append(await _plain(ctx, f"plain-{number}"))
            await asyncio.sleep(pause)
            values.append(await _written(ctx, f"written-{number}"))
        return Done(ref=ref, values=values)


@tool
async def asks(ctx: ToolContext, ref: str, together: int, rounds: int) -> Done:
    """Have an effect and ask, in rounds of so many questions side by side."""
    with _attempt(ctx):
        values = []
        for turn in range(rounds):
            values += [await _plain(ctx, f"plain-{turn}"), await _written(ctx, f"written-{turn}")]
            keys = [f"question-{turn}-{number}" for number in range(together)]
            values += await asyncio.gather(*(_answer(ctx, key) for key in keys))
        return Done(ref=ref, values=values)


@tool
async def slow(ctx: ToolContext, ref: str, seconds: float) -> Done:
    """Take longer than a lease, and say how far it is."""
    with _attempt(ctx):
        values = [await _plain(ctx, "first")]
        for part in range(int(seconds / 0.5)):
            await ctx.status(f"part {part}")
            await asyncio.sleep(0.5)
        return Done(ref=ref, values=[*values, await _written(ctx, "last")])


@tool
def blocking(ctx: SyncToolContext, ref: str, count: int) -> Done:
    """Have effects from a thread."""
    with _attempt(ctx):
        values = []
        for number in range(count):
            time.sleep(0.2)
            values.append(ctx.step(f"plain-{number}", lambda name=f"plain-{number}": _effect(ctx, name)))  # type: ignore[misc]
        return Done(ref=ref, values=values)


@tool
async def fails(ctx: ToolContext, ref: str, how: Literal["protocol", "told", "broken"]) -> Done:
    """Fail on purpose after an effect."""
    with _attempt(ctx):
        await _written(ctx, "before")
        match how:
            case "protocol":
                raise ProtocolError(*BROKEN_PAPER)
            case "told":
                raise ToolError(TOLD)
            case _:
                raise ZeroDivisionError(ref)


@tool
async def endless(ctx: ToolContext, ref: str) -> Done:
    """Go on until it is cancelled."""
    with _attempt(ctx):
        await _plain(ctx, "only")
        await asyncio.sleep(86_400)
        return Done(ref=ref, values=[])


@contextmanager
def _attempt(ctx: ToolContext | SyncToolContext) -> Iterator[None]:
    _note("begin", ctx)
    try:
        yield
    finally:
        _note("end", ctx)


async def _plain(ctx: ToolContext, name: str) -> str:
    async def effect() -> str:
        run = _effect(ctx, name)
        await asyncio.sleep(0.03)  # what dies now has had its effect, and is not recorded
        return run

    return await ctx.step(name, effect)


async def _written(ctx: ToolContext, name: str) -> str:
    async def write(connection: AsyncConnection) -> str:
        run = secrets.token_hex(8)
        await connection.execute(_WRITE, {"task": ctx.task_id, "step": name, "epoch": ctx.attempt, "run": run})
        await asyncio.sleep(0.03)
        return run

    return await ctx.transaction(name, write)


async def _answer(ctx: ToolContext, key: str) -> str:
    match await ctx.elicit(key, f"What is the value of {key}?", FORM):
        case Accepted(content):
            return str(content["value"])
    raise AssertionError("no client of the run declines")


def _effect(ctx: ToolContext | SyncToolContext, name: str) -> str:
    run = secrets.token_hex(8)
    _note("effect", ctx, step=name, run=run)
    return run


def _note(event: str, ctx: ToolContext | SyncToolContext, **more: Any) -> None:
    """Append one line; a write this short is never mixed with another's."""
    facts = {"event": event, "at": time.time(), "pid": os.getpid(), "task": ctx.task_id, "epoch": ctx.attempt, **more}
    os.write(_journal(), (json.dumps(facts) + "\n").encode())


@cache
def _journal() -> int:
    return os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
