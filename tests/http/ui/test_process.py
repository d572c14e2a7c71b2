"""The pages as processes have them: where they are on, and how they start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, CookieJar

from tests.http.ui.desks import PASSWORD
from tests.support.command import Command, perdure
from tests.support.pages import block, shell

PAGE = "docs/ui.md"
TOOLS = '''
from app import tool

@tool
async def work() -> None:
    """Do nothing."""
'''


@asynccontextmanager
async def browsing(process: Command) -> AsyncIterator[tuple[ClientSession, str]]:
    url = await asyncio.to_thread(process.says, r'"url": "(http://[^"]+)", "event": "answering operators"')
    async with ClientSession(cookie_jar=CookieJar(unsafe=True), headers={"Origin": url}) as session:
        yield session, url


@pytest.mark.parametrize(
    ("role", "password", "status"), [("serve", PASSWORD, 200), ("serve", "", 404), ("worker", PASSWORD, 404)]
)
async def test_the_api_has_pages_where_there_is_a_password_for_them_and_a_worker_has_none(
    role: str, password: str, status: int, db_url: str, tmp_path: Path
) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    arguments: list[str | Path] = ["--port", "0"] if role == "serve" else ["--tools", tmp_path / "tools.py"]
    settings = {"DATABASE_URL": db_url, "PERDURE_OPS_PORT": "0", "PERDURE_UI_PASSWORD": password}
    with perdure(tmp_path / role, role, *arguments, **settings) as process:
        async with browsing(process) as (session, url), session.get(f"{url}/ui") as answer:
            assert answer.status == status


async def test_a_process_stops_though_somebody_looks_at_its_pages(db_url: str, tmp_path: Path) -> None:
    settings = {"DATABASE_URL": db_url, "PERDURE_OPS_PORT": "0", "PERDURE_UI_PASSWORD": PASSWORD}
    with perdure(tmp_path / "serve", "serve", "--port", "0", **settings) as process:
        async with browsing(process) as (session, url):
            process.says('"event": "serving"')
            async with session.post(f"{url}/ui/login", data={"password": PASSWORD}) as answer:
                assert "Overview" in await answer.text()
            async with session.get(f"{url}/ui/events?page=/ui/tasks") as stream:
                assert await stream.content.readline() == b"retry: 2000\n"
                assert await asyncio.to_thread(process.stop) == 0
                await stream.content.read()
        assert "error" not in process.err
        assert PASSWORD not in process.err


async def test_what_the_docs_say_turns_the_pages_on(db_url: str, tmp_path: Path) -> None:
    export, serve = block(PAGE, "enable").strip().splitlines()
    script = f'{export}\nprintf %s "$PERDURE_UI_PASSWORD" > password\n{serve}'
    with shell(tmp_path, script, DATABASE_URL=db_url) as process:
        async with browsing(process) as (session, url):
            password = {"password": (tmp_path / "password").read_text()}
            async with session.post(f"{url}/ui/login", data=password) as answer:
                assert "Overview" in await answer.text()
