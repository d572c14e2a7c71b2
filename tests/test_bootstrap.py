"""What is wired differently from how its parts come; whole processes are in tests/cli."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from aiohttp import ClientSession

from app import bootstrap
from app.http.operations import Operations
from app.settings import Settings
from app.storage import notifier
from tests.storage.scene import new_task
from tests.support.waiting import eventually

TOOLS = '''
from dataclasses import replace
from app import tool
from app.tools.options import ToolOptions

@tool(retention="10m")
async def decided() -> None:
    """Say for how long."""

@tool
async def open() -> None:
    """Leave it to others."""

open = replace(open, options=ToolOptions())
'''


@pytest.fixture
def tools(tmp_path: Path) -> str:
    path = tmp_path / "retained.py"
    path.write_text(TOOLS)
    return str(path)


def test_the_settings_retention_is_for_tools_that_name_none(tools: str) -> None:
    registry = bootstrap.load_tools(Settings.read(retention="2h"), [tools])
    assert {tool.name: tool.options.retention_ms for tool in registry} == {"decided": 600_000, "open": 7_200_000}


@pytest.mark.parametrize(("allowed", "status"), [((), 403), (("tasks.example.com",), 200)])
async def test_the_api_is_known_by_the_hosts_that_are_set(
    allowed: tuple[str, ...], status: int, db_url: str, tools: str
) -> None:
    settings = Settings.read(database_url=db_url, port=0, allowed_hosts=allowed)
    async with (
        bootstrap._storage(settings, db_url, "test") as process,
        bootstrap._api(
            settings, process, bootstrap.load_tools(settings, []), None, [b"a key"], Operations("serve")
        ) as url,
        ClientSession(headers={"Host": "tasks.example.com"}) as session,
        session.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "server/discover"}) as response,
    ):
        assert response.status == status


async def test_what_a_process_changed_last_is_told_before_it_leaves(
    db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "rest", lambda _: 600.0)
    told: list[object] = []
    ear = await asyncpg.connect(db_url)
    await ear.add_listener(notifier.READY, lambda *heard: told.append(heard[3]))
    settings = Settings.read(database_url=db_url)
    async with bootstrap._storage(settings, db_url, "test") as process:
        for tool in ("first", "last"):
            await process.store.create(replace(new_task(), tool=tool))
            await eventually(lambda: _is_in("first", told))
        assert told == ["first"]
    await eventually(lambda: _is_in("last", told))
    await ear.close(timeout=5)


async def _is_in(word: str, told: list[object]) -> bool:
    return word in told


@pytest.mark.parametrize("notify", [True, False])
async def test_a_process_listens_only_where_that_is_wanted(notify: bool, db_url: str) -> None:
    settings = Settings.read(database_url=db_url, notify=notify)
    async with bootstrap._listener(settings, db_url) as listener:
        assert (listener is not None) is notify
