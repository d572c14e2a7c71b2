"""The files of docs/deploy.md as they are read, and the processes of ours that they start."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests.support.pages import ROOT, block, blocks

PAGE = "docs/deploy.md"
IMAGE = "perdure"


@dataclass(frozen=True)
class Documented:
    """A process as a file of the page has it started.

    Attributes:
        words: the command after `perdure`.
        environment: its settings.
        probes: the paths that it is asked for on its port for operators.
    """

    name: str
    words: list[str]
    environment: dict[str, str]
    probes: tuple[str, ...] = ("/readyz", "/livez")


def compose() -> dict[str, Any]:
    """The Compose file."""
    return dict(yaml.safe_load(block(PAGE, "file: compose.yaml")))


def objects(kind: str = "") -> list[dict[str, Any]]:
    """The objects for Kubernetes, all or those of a kind."""
    found = yaml.safe_load_all(block(PAGE, "file: perdure.yaml"))
    return [each for each in found if kind in ("", each["kind"])]


def rules() -> list[dict[str, Any]]:
    """The alerts."""
    return [rule for group in yaml.safe_load(block(PAGE, "file: alerts.yaml"))["groups"] for rule in group["rules"]]


def sections(name: str) -> configparser.ConfigParser:
    """A file of `name = value`; what stands before a section is in one that is called `top`."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(f"[top]\n{block(PAGE, f'file: {name}')}")
    return parser


def units() -> dict[str, configparser.ConfigParser]:
    """The units of systemd, by the names of their files."""
    names = [each.name.removeprefix("file: ") for each in blocks(PAGE) if each.name.endswith(".service")]
    return {name: sections(name) for name in names}


def image_environment() -> dict[str, str]:
    """Our settings in the image's own environment."""
    return dict(re.findall(r"\b(PERDURE_[A-Z_]+)=(\S+)", (ROOT / "Dockerfile").read_text()))


def of_compose(variables: Mapping[str, str]) -> dict[str, Documented]:
    """The services of our image, by name, with these values for the variables of the file."""
    found = {name: service for name, service in compose()["services"].items() if service["image"] == IMAGE}
    return {
        name: Documented(
            f"compose {name}",
            service["command"],
            image_environment()
            | {
                key: re.sub(r"\$\{(\w+):\?\}", lambda named: variables[named[1]], value)
                for key, value in service["environment"].items()
            },
        )
        for name, service in found.items()
    }


def of_units(instance: str = "1") -> list[Documented]:
    """The services of systemd. What the file of secrets holds is given as it is named: without values."""
    found = []
    for name, unit in units().items():
        program, *words = unit["Service"]["ExecStart"].replace("%i", instance).split()
        assert program.endswith("/bin/perdure")
        own = dict(pair.split("=", 1) for pair in unit["Service"]["Environment"].replace("%i", instance).split())
        found.append(Documented(name, words, dict.fromkeys(_named(unit["Service"]["EnvironmentFile"]), "") | own))
    return found


def of_objects(kind: str) -> list[Documented]:
    """The pods of Kubernetes. What the secret holds is given as it is named: without values."""
    found = []
    for each in objects(kind):
        [container] = each["spec"]["template"]["spec"]["containers"]
        [source] = container["envFrom"]
        secret = dict.fromkeys(_named(f"The Secret `{source['secretRef']['name']}`"), "")
        own = {variable["name"]: variable["value"] for variable in container.get("env", ())}
        probes = tuple(container[probe]["httpGet"]["path"] for probe in container if probe.endswith("Probe"))
        name = f"{kind} {each['metadata']['name']}"
        found.append(Documented(name, container["args"], image_environment() | secret | own, probes))
    return found


def _named(holder: str) -> list[str]:
    """The variables that the page says this file or secret holds."""
    text = (ROOT / PAGE).read_text()
    said = re.search(rf"{re.escape(holder)}`? holds ([^.;:]*)", text)
    assert said is not None, f"{PAGE} does not say what {holder} holds"
    return re.findall(r"`([A-Z_]+)[=`]", said[1])
