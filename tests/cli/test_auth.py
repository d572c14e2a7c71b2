"""Who is let in, as operators set it up: through the command line, with real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

from tests.cli.test_cli import ended
from tests.support.command import perdure, run_perdure
from tests.support.issuer import Issuer, issuing
from tests.support.rpc import TASKS, Client
from tests.support.waiting import eventually

TOOLS = '''
from app import ToolContext, tool

@tool
async def whoami(ctx: ToolContext) -> str:
    """Say who asks."""
    await ctx.status("looking")
    return ctx.owner

@tool(task="never")
async def who(ctx: ToolContext) -> str:
    """Say who asks, at once."""
    return ctx.owner

@tool(task="never")
async def crash(ctx: ToolContext) -> str:
    """Break."""
    raise RuntimeError("broken")
'''
PING = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "my_tools.py"
    path.write_text(TOOLS)
    return path


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


# -- keys -------------------------------------------------------------------------------------------------------------


def made_key(folder: Path, owner: str, *options: str) -> tuple[str, str]:
    """A key of the command's, and its line."""
    code, out, err = run_perdure(folder, "keys", "new", owner, *options)
    assert code == 0, err
    key, entry = out.splitlines()
    return key, entry


def test_a_new_key_and_its_line_are_all_that_is_printed(tmp_path: Path) -> None:
    key, entry = made_key(tmp_path / "first", "ci", "--scope", "tools:call", "--scope", "tasks")
    assert key.startswith("perdure_")
    assert entry.startswith("ci sha256:")
    assert entry.endswith(" tools:call tasks")
    assert key not in entry
    assert made_key(tmp_path / "second", "ci")[0] != key


@pytest.mark.parametrize("arguments", [["#ci"], [""], ["a b"], ["ci", "--scope", ""]])
def test_a_key_whose_line_would_say_something_else_is_not_made(tmp_path: Path, arguments: list[str]) -> None:
    code, out, err = run_perdure(tmp_path / "run", "keys", "new", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("perdure: No such key can be made: an owner is one word of up to 256 ASCII characters")


async def test_keys_are_replaced_while_the_api_runs_and_show_nowhere(
    tmp_path: Path, tools: Path, db_url: str, session: aiohttp.ClientSession
) -> None:
    (old, old_line), (new, new_line) = [made_key(tmp_path / name, "ada") for name in ("old", "new")]
    path, filed = tmp_path / "keys", tmp_path / "keys.new"
    path.write_text(old_line)
    settings = {"DATABASE_URL": db_url, "PERDURE_AUTH": "keys", "PERDURE_LOG_LEVEL": "debug"}
    serve: list[str | Path] = ["serve", "--tools", tools, "--port", "0", "--host", "0.0.0.0"]  # noqa: S104  # keys are asked for
    with (
        perdure(tmp_path / "api", *serve, **settings, PERDURE_API_KEYS_FILE=str(path)) as api,
        perdure(tmp_path / "worker", "worker", "--tools", tools, **settings) as worker,
    ):
        port = urlsplit(api.says(r'"url": "(http://0\.0\.0\.0:\d+/mcp)"')).port
        client = Client(session, f"http://127.0.0.1:{port}/mcp", capabilities=TASKS, token=old)
        worker.says("worker started")
        task = (await client.call("whoami")).result
        done = await ended(client, task["taskId"])
        assert done["result"]["content"][0]["text"] == "ada"
        assert (await client.call("who")).result["content"][0]["text"] == "ada"
        await client.call("crash")
        filed.write_text(new_line)
        filed.replace(path)

        async def replaced() -> bool:
            return await status(client.with_(token=new)) == 200

        await eventually(replaced)
        assert await status(client) == 401
        assert await status(client.with_(url=f"{client.url}?access_token={new}", token=new)) == 400
        assert (api.stop(), worker.stop()) == (0, 0)
        said = api.out + api.err + worker.out + worker.err
    assert '"level": "error"' in said  # it does log what is wrong
    for secret in (old, new, *(entry.split()[1].removeprefix("sha256:") for entry in (old_line, new_line))):
        assert secret not in said
        assert secret not in str(done)
        assert not await holds(db_url, secret)
    assert await holds(db_url, "ada")


async def status(client: Client) -> int:
    """The status of the answer to a request of this client."""
    headers = {"Authorization": f"Bearer {client.token}", "Content-Type": "application/json"}
    async with client.session.post(client.url, data=PING, headers=headers) as response:
        return response.status


async def holds(db_url: str, text: str) -> bool:
    """Whether any row of any table of the database holds this text, or its bytes."""
    connection = await asyncpg.connect(db_url)
    try:
        tables = await connection.fetch(
            "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables "
            "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        assert len(tables) > 5
        for table in tables:
            rows = await connection.fetch(f"SELECT t::text AS row FROM {table['name']} AS t")
            if any(text in row["row"] or text.encode().hex() in row["row"] for row in rows):
                return True
        return False
    finally:
        await connection.close()


# -- tokens -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as running:
        yield running


async def test_tokens_of_an_authorization_server_let_in_and_show_nowhere(
    tmp_path: Path, tools: Path, db_url: str, session: aiohttp.ClientSession, issuer: Issuer
) -> None:
    settings = {
        "DATABASE_URL": db_url,
        "PERDURE_LOG_LEVEL": "debug",
        "PERDURE_AUTH": "oauth",
        "PERDURE_OAUTH_ISSUER": issuer.url,
        "PERDURE_PUBLIC_URL": "https://mcp.example.com/mcp",
        "PERDURE_CALL_SCOPES": "tools:call",
        "PERDURE_BROADER_SCOPES": "admin>tools:call",
    }
    with (
        perdure(tmp_path / "api", "serve", "--tools", tools, "--port", "0", **settings) as api,
        perdure(tmp_path / "worker", "worker", "--tools", tools, DATABASE_URL=db_url) as worker,
    ):
        url = await asyncio.to_thread(api.says, r'"url": "(http://127\.0\.0\.1:\d+/mcp)"')
        await asyncio.to_thread(worker.says, "worker started")
        async with session.get(url.removesuffix("/mcp") + "/.well-known/oauth-protected-resource/mcp") as response:
            metadata = await response.json()
        assert (metadata["authorization_servers"], metadata["scopes_supported"]) == ([issuer.url], ["tools:call"])
        good, narrow = issuer.token(scope="admin", client_id="app"), issuer.token()
        expired, foreign = issuer.token(exp=1), issuer.token(aud="https://other.example")
        client = Client(session, url, capabilities=TASKS, token=good)
        task = (await client.call("whoami")).result
        done = await ended(client, task["taskId"])
        assert done["result"]["content"][0]["text"] == f"{issuer.url} ada app"
        await client.call("crash")
        assert (await client.with_(token=narrow).call("who")).status == 403
        assert [await status(client.with_(token=token)) for token in (expired, foreign)] == [401, 401]
        assert (api.stop(), worker.stop()) == (0, 0)
        said = api.out + api.err + worker.out + worker.err
    for token in (good, narrow, expired, foreign):
        for part in (token, token.rpartition(".")[2]):
            assert part not in said
            assert part not in str(done)
            assert not await holds(db_url, part)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"PERDURE_AUTH": "oauth"}, "PERDURE_AUTH=oauth needs PERDURE_OAUTH_ISSUER and PERDURE_PUBLIC_URL"),
        ({"PERDURE_AUTH": "keys"}, "There are no API keys"),
        ({"PERDURE_AUTH": "keys", "PERDURE_API_KEYS": "ada hush"}, "API keys, line 1: after the owner stands"),
        ({"PERDURE_AUTH": "keys", "PERDURE_API_KEYS_FILE": "/no/hush"}, "The file of API keys (PERDURE_API_KEYS_FILE)"),
    ],
)
def test_what_would_let_in_the_wrong_ones_is_refused_at_the_start(
    tmp_path: Path, db_url: str, settings: dict[str, str], says: str
) -> None:
    code, out, err = run_perdure(tmp_path / "run", "serve", "--port", "0", DATABASE_URL=db_url, **settings)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith(f"perdure: {says}")
    assert "hush" not in err


# -- nobody is asked --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "host"), [("serve", "0.0.0.0"), ("dev", "tasks.example.com")])  # noqa: S104
def test_everybody_is_let_in_from_elsewhere_only_if_that_is_said_twice(
    tmp_path: Path, tools: Path, db_url: str, host: str, command: str
) -> None:
    arguments = (command, "--tools", tools, "--port", "0", "--host", host)
    code, out, err = run_perdure(tmp_path / "run", *arguments, DATABASE_URL=db_url)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"perdure: The API would let everybody in who reaches {host}: set PERDURE_AUTH to keys or")


async def test_said_twice_everybody_is_let_in(tmp_path: Path, db_url: str, session: aiohttp.ClientSession) -> None:
    settings = {"DATABASE_URL": db_url, "PERDURE_HOST": "0.0.0.0", "PERDURE_ALLOW_ANONYMOUS": "true"}  # noqa: S104
    with perdure(tmp_path / "run", "serve", "--port", "0", **settings) as api:
        port = urlsplit(await asyncio.to_thread(api.says, r'"url": "(http://0\.0\.0\.0:\d+/mcp)"')).port
        assert (await Client(session, f"http://127.0.0.1:{port}/mcp").rpc("tools/list")).status == 200
