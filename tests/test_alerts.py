"""The alerts of docs/deploy.md, by a Prometheus that watches an API and a worker."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from tests.faults.postgres import free_port
from tests.support.command import Command, perdure
from tests.support.deploy_page import rules
from tests.support.pages import block
from tests.support.rpc import PUBLISHED, TASKS, Client
from tests.support.scraped import ops_url
from tests.support.waiting import eventually

PAGE = "docs/deploy.md"
TOOLS = '''
import asyncio
from app import tool

@tool
async def patient() -> None:
    """Take long."""
    await asyncio.sleep(600)
'''
CONFIGURATION = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: perdure
    static_configs: [{{targets: [{targets}]}}]
"""


@dataclass(frozen=True)
class Prometheus:
    """A server that has been started."""

    url: str

    async def ask(self, path: str, **parameters: str) -> dict[str, Any]:
        """What its API answers."""
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        return dict(json.loads(await asyncio.to_thread(read, asked))["data"])

    async def series(self, query: str) -> list[dict[str, Any]]:
        """What a query finds."""
        return list((await self.ask("query", query=query))["result"])

    async def scraped(self, processes: int) -> None:
        """Wait until it has asked so many processes twice each: a rate takes two values."""

        async def seen() -> bool:
            return len(await self.series("count_over_time(up[1m]) >= 2 and up == 1")) == processes

        await eventually(seen)

    async def rules(self) -> dict[str, dict[str, Any]]:
        """The rules by their names, each looked at once at least."""

        async def looked() -> dict[str, dict[str, Any]]:
            found = [rule for group in (await self.ask("rules"))["groups"] for rule in group["rules"]]
            seen = {rule["name"]: rule for rule in found}
            return seen if all(rule["health"] != "unknown" for rule in found) else {}

        return await eventually(looked)


def read(url: str) -> bytes:
    """The body of a good answer."""
    with urllib.request.urlopen(url, timeout=20) as response:  # noqa: S310
        return bytes(response.read())


@contextmanager
def watching(program: str, folder: Path, *processes: Command) -> Iterator[Prometheus]:
    """Prometheus with the page's alerts, told to scrape these processes."""
    folder.mkdir()
    (folder / "alerts.yaml").write_text(block(PAGE, "file: alerts.yaml"))
    targets = ", ".join(f"'{ops_url(each).removeprefix('http://')}'" for each in processes)
    (folder / "prometheus.yaml").write_text(CONFIGURATION.format(targets=targets))
    address = f"127.0.0.1:{free_port()}"
    options = [f"--web.listen-address={address}", "--config.file=prometheus.yaml", "--storage.tsdb.path=data"]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        server = subprocess.Popen([program, *options], cwd=folder, stdout=out, stderr=err)
    try:
        Command(server, folder).says("Server is ready to receive web requests")
        yield Prometheus(f"http://{address}")
    finally:
        server.kill()
        server.wait()


def measured(expression: str) -> list[str]:
    """What an expression compares, without what it compares that with."""
    sides = [re.fullmatch(r"(.+) (?:==|>) [\d.]+", side.strip()) for side in expression.split(" and ")]
    return [side[1] for side in sides if side]


def test_promtool_understands_the_alerts(tmp_path: Path, find_program: Callable[[str], str]) -> None:
    (tmp_path / "alerts.yaml").write_text(block(PAGE, "file: alerts.yaml"))
    done = subprocess.run(
        [find_program("promtool"), "check", "rules", tmp_path / "alerts.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(rules())} rules found" in done.stdout


async def test_each_alert_measures_something_and_none_is_raised_until_something_is_wrong(
    db_url: str, tmp_path: Path, find_program: Callable[[str], str]
) -> None:
    program, tools = find_program("prometheus"), tmp_path / "watched_tools.py"
    tools.write_text(TOOLS)
    settings = {"DATABASE_URL": db_url, "PERDURE_OPS_PORT": "0", "PERDURE_SLOTS": "1", "PERDURE_GRACE_SECONDS": "1"}
    with (
        perdure(tmp_path / "worker", "worker", "--tools", tools, **settings) as worker,
        perdure(tmp_path / "serve", "serve", "--port", "0", **settings) as serve,
    ):
        api = serve.says(r'"url": "(http://[^"]+/mcp)"')
        worker.says("worker started")
        async with ClientSession() as session:
            client = Client(session, api, version=PUBLISHED, capabilities=TASKS)
            for _ in range(2):
                task = (await client.call("patient")).result["taskId"]
            await client.rpc("tasks/get", {"taskId": task})
        with watching(program, tmp_path / "prometheus", serve, worker) as prometheus:
            await prometheus.scraped(2)
            found = await prometheus.rules()
            assert list(found) == [rule["alert"] for rule in rules()]
            assert {rule["health"] for rule in found.values()} == {"ok"}
            assert [rule["alerts"] for rule in found.values() if rule["alerts"]] == []
            for rule in rules():
                assert measured(rule["expr"])
                for query in measured(rule["expr"]):
                    assert await prometheus.series(query), f"{rule['alert']} would never be raised: {query}"
            worker.stop()

            async def raised() -> bool:
                return [name for name, rule in (await prometheus.rules()).items() if rule["alerts"]] == [
                    "PerdureNoWorkerForTool"
                ]

            await eventually(raised)
