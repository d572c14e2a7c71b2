"""The tools that an API process can offer: those that the fleet's workers bring, and its own `never` tools.

The workers' tools are read from the database and kept for a while. Reading again never holds requests up for long, and
where it fails the old list goes on being served.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import structlog

from app.domain.task import Json, Policy
from app.errors import StoreUnavailable
from app.storage.rows import CatalogueRow
from app.storage.store import Store
from app.tools.header_params import HeaderParam, header_params
from app.tools.options import ToolOptions
from app.tools.registry import Registry, Tool
from app.tools.validation import SchemaValidator
from app.wire.envelope import dumps

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """A tool that can be called.

    Attributes:
        definition: the tool as clients see it (core, "Tool").
        text: the same as the JSON text that tools/list sends.
        digest: changes with the definition or the options of a tool that workers run.
        arguments: says whether the arguments of a call fit.
        headers: the arguments that clients mirror into headers.
        tool: the function itself, of a tool that runs in this process; None for one that workers run.
        policy: what its tasks are created with.
    """

    name: str
    definition: dict[str, Any]
    text: Json
    digest: str
    options: ToolOptions
    arguments: SchemaValidator
    headers: tuple[HeaderParam, ...]
    tool: Tool | None = None
    policy: Policy = field(init=False)

    def __post_init__(self) -> None:
        """Read the policy from the options, once."""
        object.__setattr__(self, "policy", self.options.to_policy())


class Catalogue:
    """What tools/list shows and tools/call looks a name up in.

    Args:
        store: where the workers' tools are read from.
        local: the tools that this process has loaded; only its `never` tools count.
        fresh_seconds: a list of this age is read again.
        unknown_seconds: a name that is not in the list leads to another reading, at most this often.
        patience_seconds: how long a request waits for a list to be read again before it is content with the old one.
    """

    def __init__(
        self,
        store: Store,
        local: Registry | None = None,
        *,
        fresh_seconds: float = 5.0,
        unknown_seconds: float = 1.0,
        patience_seconds: float = 1.0,
    ) -> None:
        self._store = store
        self._fresh, self._unknown, self._patience = fresh_seconds, unknown_seconds, patience_seconds
        self._local = _local(local)
        self._shared: dict[str, Entry] | None = None
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._unusable: set[str] = set()
        self._edition = 0

    async def entries(self) -> list[Entry]:
        """All tools, by name.

        Raises:
            StoreUnavailable: the list was never read, and cannot be.
        """
        shared = await self._recent(self._fresh)
        return [entry for _, entry in sorted((shared | self._local).items())]

    async def find(self, name: str) -> Entry | None:
        """The tool of this name, None if there is none; one that a worker has just brought is found.

        Raises:
            StoreUnavailable: the list was never read, and cannot be.
        """
        if name in self._local:
            return self._local[name]
        shared = await self._recent(self._fresh)
        if name not in shared:
            shared = await self._recent(self._unknown)
        return shared.get(name)

    def lists(self, name: str) -> bool:
        """Whether a tool of this name was there when the list was last read."""
        return name in self._local or name in (self._shared or {})

    async def edition(self) -> int:
        """Changes when `entries` would show another list, or other definitions.

        Raises:
            StoreUnavailable: the list was never read, and cannot be.
        """
        await self._recent(self._fresh)
        return self._edition

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def _recent(self, age: float) -> dict[str, Entry]:
        """The workers' tools as they were read no longer than `age` seconds ago, if that can be had in time.

        All callers wait for the same reading, which goes on when they are cancelled.
        """
        if self._shared is None or time.monotonic() - self._read_at >= age:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read())
            await asyncio.wait({self._reading}, timeout=None if self._shared is None else self._patience)
        if self._shared is None:
            raise StoreUnavailable("The list of tools cannot be read. Try again later.")
        return self._shared

    async def _read(self) -> None:
        started = time.monotonic()
        try:
            rows = await self._store.read_tools()
        except StoreUnavailable:
            log.warning("the catalogue cannot be read")
        except Exception:
            log.exception("the catalogue cannot be read")
        else:
            shared = {entry.name: entry for row in rows if (entry := self._entry(row)) is not None}
            if self._shared is not None and _shown(shared) != _shown(self._shared):
                self._edition += 1
            self._shared = shared
            self._read_at = started
            return
        # One that failed counts too: while the database is away, not every request waits for another.
        self._read_at = time.monotonic()

    def _entry(self, row: CatalogueRow) -> Entry | None:
        """The entry of a row, compiled once. A row that cannot be used is passed over: it must not hide the others."""
        known = (self._shared or {}).get(row.name)
        if known is not None and known.digest == row.digest:
            return known
        try:
            entry = _brought(row)
        except (ValueError, LookupError, TypeError) as error:
            if row.digest not in self._unusable:
                self._unusable.add(row.digest)
                log.error("a tool of the catalogue cannot be used", tool=row.name, error=type(error).__name__)
            return None
        return None if entry.options.task == "never" else entry


def _shown(entries: dict[str, Entry]) -> dict[str, Json]:
    """What clients see of tools."""
    return {name: entry.text for name, entry in entries.items()}


def _local(registry: Registry | None) -> dict[str, Entry]:
    """The `never` tools of this process, by name."""
    return {tool.name: _own(tool) for tool in registry or () if tool.options.task == "never"}


def _own(tool: Tool) -> Entry:
    text, schema = dumps(tool.definition), tool.definition["inputSchema"]
    validator = SchemaValidator(schema)
    return Entry(tool.name, tool.definition, text, "", tool.options, validator, header_params(schema), tool)


def _brought(row: CatalogueRow) -> Entry:
    definition, options = json.loads(row.definition), ToolOptions.model_validate_json(row.options)
    schema = definition["inputSchema"]
    validator = SchemaValidator(schema)
    return Entry(row.name, definition, row.definition, row.digest, options, validator, header_params(schema))
