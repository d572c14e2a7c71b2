"""The image, as far as it can be judged without an engine that builds it: each rule is a test."""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from app.cli import COMMANDS
from app.settings import Settings, variable

ROOT = Path(__file__).parents[1]
VARIABLES = {variable(name) for name in Settings.model_fields}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    split = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word.upper(), rest.strip()) for word, _, rest in split]


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def last(word: str) -> str:
    """What an instruction of the final stage says; it is there once."""
    [found] = [rest for each, rest in stages()[-1] if each == word]
    return found


def sent(path: str) -> bool:
    """Whether .dockerignore lets a path of the checkout into the build."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().split():
        pattern = line.removeprefix("!").removeprefix("**/")
        if fnmatch(path, pattern) or fnmatch(path.split("/")[0], pattern) or fnmatch(path.split("/")[-1], pattern):
            ignored = not line.startswith("!")
    return not ignored


def copied() -> list[str]:
    """What is copied from the checkout."""
    found = [rest.split() for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    return [source for *sources, _ in found for source in sources]


def test_what_is_copied_is_there_and_is_all_that_the_package_is_built_from() -> None:
    assert all((ROOT / path).exists() and sent(path) for path in copied())
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], PROJECT["project"]["readme"]}
    needed |= {*PROJECT["project"]["license-files"], "pyproject.toml", "constraints.txt"}
    assert needed == set(copied())


def test_nothing_else_is_sent_to_the_build() -> None:
    for path in (".git", ".env", "tests", "docs", ".venv", ".perdure", "app/__pycache__"):
        assert not sent(path), path


def test_a_process_runs_alone_as_nobody_and_gets_its_signals() -> None:
    final = stages()[-1]
    words = [word for word, _ in final]
    user = last("USER")
    assert user.isdigit(), "Kubernetes cannot tell of a name that it is not root"
    assert int(user) > 0
    assert "RUN" not in words[words.index("USER") :]
    assert f"--uid {user} " in " ".join(rest for word, rest in final if word == "RUN")
    assert last("STOPSIGNAL") == "SIGTERM"
    for form in (last("ENTRYPOINT"), last("CMD"), last("HEALTHCHECK").partition("CMD ")[2]):
        assert isinstance(json.loads(form), list), "a shell would keep the signals for itself"


def test_its_argument_is_a_command() -> None:
    [program] = json.loads(last("ENTRYPOINT"))
    assert program in PROJECT["project"]["scripts"]
    health = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert health[0] == program
    assert {health[1], "serve", "worker", "migrate"} <= set(COMMANDS)


def test_its_variables_and_ports_are_those_of_the_settings() -> None:
    named = set(re.findall(r"\bPERDURE_[A-Z_]+", (ROOT / "Dockerfile").read_text()))
    assert named == {"PERDURE_HOST", "PERDURE_OPS_HOST"} <= VARIABLES
    settings = Settings.read()
    assert last("EXPOSE").split() == [str(settings.port), str(settings.ops_port)]


def test_it_is_built_from_fixed_things_and_leaves_nothing_behind() -> None:
    text = " ".join(rest for _, rest in instructions())
    assert re.search(r"PYTHON=3\.\d+-slim", text)
    version = text.partition("PYTHON=")[2].partition("-")[0]
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]
    assert all("${PYTHON}" in rest for word, rest in instructions() if word == "FROM")
    assert len(stages()) == 2
    assert "constraints.txt" in text
    assert "PIP_NO_CACHE_DIR=1" in text
    assert not {"ADD", "MAINTAINER", "SHELL"} & {word for word, _ in instructions()}
    assert not re.search(r"curl|wget|apt-get|sudo|chmod 777", text)
    assert not re.search(r"(PASSWORD|SECRET|TOKEN|_KEY)=", text)
    assert "pip" not in " ".join(rest for word, rest in stages()[-1] if word == "RUN")


def test_it_says_what_it_is() -> None:
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', (ROOT / "Dockerfile").read_text()))
    assert labels.keys() == {"title", "description", "licenses", "version", "revision"}
    assert (labels["licenses"], labels["description"]) == (
        PROJECT["project"]["license"],
        PROJECT["project"]["description"],
    )
