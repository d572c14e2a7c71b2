"""The tools that an API process can offer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from typing import Annotated, Any

import pytest
from pydantic import Field
from structlog.testing import capture_logs

from app.domain.task import Json
from app.errors import StoreUnavailable
from app.storage.database import Database
from app.storage.rows import CatalogueRow
from app.storage.store import Store
from app.tools.catalogue import Catalogue
from app.tools.header_params import HeaderParam
from app.tools.options import TaskMode
from app.tools.registry import Registry, Tool, tool
from tests.support.cable import cable_to

Mirrored = Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]
TIMES: dict[str, Any] = {"fresh_seconds": inf, "unknown_seconds": inf}


def named(name: str, *, task: TaskMode = "auto", description: str = "Nothing") -> Tool:
    """A tool of that name."""

    @tool(name=name, task=task, description=description)
    async def nothing(count: int = 1) -> None: ...

    return nothing


class CountingStore(Store):
    """The store, counting how often the catalogue is read."""

    reads = 0

    async def read_tools(self) -> list[CatalogueRow]:
        self.reads += 1
        return await super().read_tools()


@asynccontextmanager
async def storing(url: str, **options: Any) -> AsyncIterator[CountingStore]:
    """A store of the test's own."""
    async with Database(url, **options) as database:
        yield CountingStore(database)


@pytest.fixture
async def store(db_url: str) -> AsyncIterator[CountingStore]:
    """A store whose catalogue has one tool, `job`."""
    async with storing(db_url) as store:
        await store.publish_tools(Registry([named("job")]).catalogue())
        yield store


async def names(catalogue: Catalogue) -> list[str]:
    """The names of all tools."""
    return [entry.name for entry in await catalogue.entries()]


async def test_workers_tools_and_own_ones_are_offered_together(store: Store) -> None:
    catalogue = Catalogue(store, Registry([named("greet", task="never"), named("zip", task="never")]))
    assert await names(catalogue) == ["greet", "job", "zip"]
    greet, job = await catalogue.find("greet"), await catalogue.find("job")
    assert greet is not None
    assert job is not None
    assert (greet.tool is None, job.tool is None) == (False, True)
    assert await catalogue.find("Job") is None


async def test_own_tools_that_become_tasks_are_offered_only_if_a_worker_has_them(store: Store) -> None:
    catalogue = Catalogue(store, Registry([named("elsewhere"), named("job", description="Not the workers' one")]))
    assert await names(catalogue) == ["job"]
    job = await catalogue.find("job")
    assert job is not None
    assert job.definition["description"] == "Nothing"


async def test_a_tool_without_tasks_that_somebody_has_published_is_not_offered(store: Store) -> None:
    [row] = Registry([named("sneaky")]).catalogue()
    await store.publish_tools([replace(row, options=Json('{"task":"never"}'))])
    catalogue = Catalogue(store)
    assert await names(catalogue) == ["job"]
    assert await catalogue.find("sneaky") is None


async def test_what_is_listed_is_the_text_that_was_published(store: Store) -> None:
    [row] = Registry([named("odd")]).catalogue()
    text = Json(row.definition.replace('"type":"object"', '"type" : "object"').replace("{", "{ ", 1))
    await store.publish_tools([replace(row, definition=text)])
    odd = await Catalogue(store).find("odd")
    assert odd is not None
    assert odd.text == text
    assert odd.arguments.check({"count": 2}) is None
    assert odd.arguments.check({"count": "two"}) is not None


async def test_an_entry_names_the_arguments_that_are_mirrored_into_headers(store: Store) -> None:
    def mirroring(name: str, task: TaskMode) -> Tool:
        @tool(name=name, task=task, description="Nothing")
        async def nothing(place: Mirrored, count: int = 1) -> None: ...

        return nothing

    await store.publish_tools(Registry([mirroring("away", "auto")]).catalogue())
    catalogue = Catalogue(store, Registry([mirroring("here", "never")]))
    headers = {entry.name: entry.headers for entry in await catalogue.entries()}
    region = (HeaderParam("Region", ("place",)),)
    assert headers == {"away": region, "here": region, "job": ()}


async def test_a_fresh_list_is_not_read_again(store: CountingStore) -> None:
    catalogue = Catalogue(store, **TIMES)
    for _ in range(3):
        assert await names(catalogue) == ["job"]
        assert await catalogue.find("job") is not None
        assert await catalogue.find("unknown") is None
    assert store.reads == 1


async def test_an_old_list_is_read_again_and_shows_what_has_changed(store: CountingStore) -> None:
    catalogue = Catalogue(store, fresh_seconds=0)
    assert await names(catalogue) == ["job"]
    await store.publish_tools(Registry([named("job", description="Another"), named("new")]).catalogue())
    assert await names(catalogue) == ["job", "new"]
    job = await catalogue.find("job")
    assert job is not None
    assert job.definition["description"] == "Another"


async def test_a_tool_that_was_not_there_is_found_as_soon_as_it_is(store: CountingStore) -> None:
    catalogue = Catalogue(store, fresh_seconds=inf, unknown_seconds=0)
    assert await catalogue.find("new") is None
    await store.publish_tools(Registry([named("new")]).catalogue())
    assert await catalogue.find("new") is not None


async def test_names_that_do_not_exist_do_not_lead_to_a_reading_each(store: CountingStore) -> None:
    catalogue = Catalogue(store, fresh_seconds=inf, unknown_seconds=60)
    for n in range(20):
        assert await catalogue.find(f"unknown-{n}") is None
    assert store.reads == 1


async def test_many_requests_at_once_wait_for_one_reading(store: CountingStore) -> None:
    catalogue = Catalogue(store, fresh_seconds=60)
    await asyncio.gather(*(catalogue.find("job") for _ in range(50)), *(names(catalogue) for _ in range(50)))
    assert store.reads == 1


async def test_a_request_that_is_cancelled_leaves_the_reading_to_the_others(store: CountingStore) -> None:
    catalogue = Catalogue(store, **TIMES)
    first, second = (asyncio.create_task(names(catalogue)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ["job"]
    assert store.reads == 1


async def test_an_entry_is_compiled_once_until_it_changes(store: CountingStore) -> None:
    catalogue = Catalogue(store, fresh_seconds=0)
    before = await catalogue.find("job")
    assert await catalogue.find("job") is before
    await store.publish_tools(Registry([named("job", description="Another")]).catalogue())
    assert await catalogue.find("job") is not before


@pytest.mark.parametrize(
    "broken",
    [
        {"definition": Json("7")},
        {"definition": Json("{}")},
        {"definition": Json('{"name":"bad","inputSchema":{"type":"no such type"}}')},
        {"definition": Json('{"name":"bad","inputSchema":{"$ref":"https://example.com/schema"}}')},
        {"definition": Json('{"name":"bad","inputSchema":{"type":"object","x-mcp-header":"Region"}}')},
        {"options": Json('{"task":"sometimes"}')},
        {"options": Json("[]")},
    ],
)
async def test_a_tool_that_cannot_be_used_is_passed_over_and_reported_once(
    store: CountingStore, broken: dict[str, Json]
) -> None:
    [row] = Registry([named("bad")]).catalogue()
    await store.publish_tools([replace(row, **broken)])
    catalogue = Catalogue(store, fresh_seconds=0)
    with capture_logs() as logs:
        assert await names(catalogue) == ["job"]
        assert await names(catalogue) == ["job"]
    assert [line["tool"] for line in logs if line["log_level"] == "error"] == ["bad"]


async def test_a_tool_of_a_newer_release_with_options_unheard_of_is_offered(store: CountingStore) -> None:
    [row] = Registry([named("newer")]).catalogue()
    await store.publish_tools([replace(row, options=Json(row.options[:-1] + ',"unheard_of":{"a":1}}'))])
    assert await names(Catalogue(store)) == ["job", "newer"]


async def test_the_old_list_is_served_while_the_database_is_away(db_url: str) -> None:
    async with cable_to(db_url) as cable, storing(cable.url, patience_seconds=0.1) as store:
        await store.publish_tools(Registry([named("job")]).catalogue())
        catalogue = Catalogue(store, fresh_seconds=0, unknown_seconds=0)
        assert await names(catalogue) == ["job"]
        await cable.pull_out()
        assert await names(catalogue) == ["job"]
        assert await catalogue.find("unknown") is None
        await cable.plug_in()
        await store.publish_tools(Registry([named("new")]).catalogue())
        assert await names(catalogue) == ["job", "new"]
        await catalogue.close()


async def test_while_the_database_is_away_not_every_request_asks_it(db_url: str) -> None:
    async with cable_to(db_url) as cable, storing(cable.url, patience_seconds=0.1) as store:
        await store.publish_tools(Registry([named("job")]).catalogue())
        catalogue = Catalogue(store, fresh_seconds=60)
        assert await names(catalogue) == ["job"]
        await cable.pull_out()
        catalogue._read_at = -inf  # long ago
        for _ in range(5):
            assert await names(catalogue) == ["job"]
        assert store.reads == 2
        await catalogue.close()


async def test_a_reading_that_takes_long_holds_nobody_up(db_url: str) -> None:
    async with cable_to(db_url) as cable, storing(cable.url) as store:
        await store.publish_tools(Registry([named("job")]).catalogue())
        catalogue = Catalogue(store, fresh_seconds=0, patience_seconds=0.05)
        assert await names(catalogue) == ["job"]
        await cable.pull_out()
        async with asyncio.timeout(5):  # the store itself would try for 30
            assert await names(catalogue) == ["job"]
        await catalogue.close()


async def test_a_reading_that_fails_in_an_unknown_way_keeps_the_old_list(store: CountingStore) -> None:
    catalogue = Catalogue(store, fresh_seconds=0)
    assert await names(catalogue) == ["job"]
    await store._db.fetch("ALTER TABLE perdure.tools RENAME TO gone")
    with capture_logs() as logs:
        assert await names(catalogue) == ["job"]
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["the catalogue cannot be read"]


async def test_a_list_that_was_never_read_is_no_empty_list(db_url: str) -> None:
    async with cable_to(db_url) as cable, storing(cable.url, patience_seconds=0.1) as store:
        catalogue = Catalogue(store, Registry([named("greet", task="never")]))
        await cable.pull_out()
        with pytest.raises(StoreUnavailable):
            await catalogue.entries()
        with pytest.raises(StoreUnavailable):
            await catalogue.find("job")
        assert await catalogue.find("greet") is not None
        await cable.plug_in()
        assert await names(catalogue) == ["greet"]
        await catalogue.close()
