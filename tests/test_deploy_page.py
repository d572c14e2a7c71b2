"""What docs/deploy.md says is so: what its files and sentences name is there, and they fit each other."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import psycopg
import pytest
from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from app import bootstrap
from app.errors import ErrorKind
from app.http.ops import Ops
from app.http.readiness import Readiness
from app.http.stopping import LAST_SECONDS
from app.settings import Settings, variable
from app.telemetry import metrics
from app.worker.attempt import Outcome
from app.worker.runner import UNWIND_SECONDS
from tests.support.deploy_page import IMAGE, compose, objects, rules, sections, units
from tests.support.pages import block, span
from tests.test_image import last, stages

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/deploy.md").read_text()
VARIABLES = {variable(name) for name in Settings.model_fields}
AFTER_GRACE = max(UNWIND_SECONDS, LAST_SECONDS) + 5
"""What a process needs beside its grace: to unwind handlers, and to give back what does not end."""


def grace_of(pod: dict[str, Any]) -> float:
    [container] = pod["containers"]
    return float(next(each["value"] for each in container["env"] if each["name"] == "PERDURE_GRACE_SECONDS"))


# -- names ------------------------------------------------------------------------------------------------------------


def test_every_setting_that_is_named_exists() -> None:
    named = set(re.findall(r"\bPERDURE_[A-Z_]+\b", PAGE))
    assert named - VARIABLES == set()
    assert len(named) > 10


def test_every_state_and_message_that_is_named_can_be_seen() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "app").rglob("*.py"))
    states = [*re.findall(r"`/readyz` says `[^`]+`", PAGE), "`newer`"]
    said = [word.split(": ")[-1] for text in states for word in re.findall(r"`([^`/]+)`", text)]
    said += re.findall(r'"([^"]+)" in the log', PAGE) + re.findall(r'clients get \d+ "([^"]+)"', PAGE)
    assert len(said) >= 8
    assert [text for text in said if text not in code] == []


# -- files ------------------------------------------------------------------------------------------------------------


def test_the_image_of_one_s_own_is_built_on_ours_and_runs_as_the_same_user() -> None:
    docker, build, *words, context = shlex.split(block("docs/deploy.md", "command: build"))
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert (docker, build, context, sorted(options)) == ("docker", "build", ".", ["--build-arg", "-t"])
    arguments = [rest.partition("=")[0] for word, rest in stages()[-1] if word == "ARG"]
    assert options["--build-arg"].partition("=")[0] in arguments
    lines = [line.split(maxsplit=1) for line in block("docs/deploy.md", "file: Dockerfile").splitlines()]
    assert lines[0] == ["FROM", options["-t"]] == ["FROM", IMAGE]
    assert lines[-1] == ["USER", last("USER")]
    [copied] = [rest.split()[-1] for word, rest in lines if word == "COPY"]
    [installed] = [rest.split()[-1] for word, rest in lines if word == "RUN"]
    assert copied == installed
    assert last("ENTRYPOINT") == '["perdure"]', "what the files give as command or args are its arguments"


def test_the_compose_file_migrates_before_it_serves_and_waits_for_the_grace() -> None:
    services = compose()["services"]
    assert services["migrate"]["depends_on"]["database"]["condition"] == "service_healthy"
    for role in ("serve", "worker"):
        service = services[role]
        assert service["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
        grace = float(service["environment"]["PERDURE_GRACE_SECONDS"])
        assert float(service["stop_grace_period"].removesuffix("s")) >= grace + AFTER_GRACE
        assert service["environment"].keys() <= VARIABLES
    hosts = services["serve"]["environment"]["PERDURE_ALLOWED_HOSTS"].split(",")
    assert {"serve", "worker"} <= set(hosts), "Prometheus scrapes them by these names"
    named_volumes = {volume.partition(":")[0] for volume in services["database"]["volumes"]}
    assert named_volumes == set(compose()["volumes"])


@pytest.mark.parametrize("name", ["perdure-serve.service", "perdure-worker@1.service"])
def test_systemd_has_nothing_to_say_against_a_unit(
    name: str, tmp_path: Path, find_program: Callable[[str], str]
) -> None:
    template = re.sub(r"@\d+", "@", name)
    unit = block("docs/deploy.md", f"file: {template}").replace("/opt/perdure/bin/perdure", sys.executable)
    (tmp_path / template).write_text(unit)
    command = [find_program("systemd-analyze"), "verify", "--man=no", f"./{name}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_wait_for_the_grace() -> None:
    assert set(units()) == {"perdure-serve.service", "perdure-worker@.service"}
    for unit in units().values():
        service = unit["Service"]
        environment = dict(pair.split("=") for pair in service["Environment"].split())
        assert environment.keys() <= VARIABLES
        assert float(service["TimeoutStopSec"]) >= float(environment["PERDURE_GRACE_SECONDS"]) + AFTER_GRACE
        assert service["KillMode"] == "mixed"


def test_pods_wait_for_the_grace_and_probe_what_is_served() -> None:
    settings = Settings.read()
    paths = {route.resource.canonical for route in Ops(Readiness())._runner.app.router.routes() if route.resource}
    for deployment in objects("Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        [container] = spec["containers"]
        sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert spec["terminationGracePeriodSeconds"] >= sleep + grace_of(spec) + AFTER_GRACE
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["ops"] == settings.ops_port
        assert ports.get("http", settings.port) == settings.port
        for probe in ("readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["path"] in paths
            assert container[probe]["httpGet"]["port"] in ports
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
        assert {each["name"] for each in container["env"]} <= VARIABLES


@pytest.mark.parametrize("each", objects(), ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_kubernetes_knows_each_object_and_all_that_it_says(each: dict[str, Any]) -> None:
    kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_selectors_find_what_they_select() -> None:
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in objects("Deployment")]
    for deployment, own in zip(objects("Deployment"), labels, strict=True):
        assert deployment["spec"]["selector"]["matchLabels"] == own
    selected = [each["spec"]["selector"] for each in objects("Service")]
    selected += [each["spec"]["selector"]["matchLabels"] for each in objects("PodDisruptionBudget")]
    assert all(each in labels for each in selected)
    [policy] = objects("NetworkPolicy")
    [matched] = policy["spec"]["podSelector"]["matchExpressions"]
    assert sorted(matched["values"]) == sorted(each[matched["key"]] for each in labels)


def test_the_pooler_is_the_kind_that_the_page_speaks_of_and_leads_to_one_database() -> None:
    pooler = sections("pgbouncer.ini")
    assert list(pooler["databases"]) == ["perdure"]
    assert pooler["pgbouncer"].keys() == {"pool_mode", "max_client_conn", "default_pool_size"}
    assert pooler["pgbouncer"]["pool_mode"] == "transaction"


def test_the_queries_run(db_url: str) -> None:
    with psycopg.connect(db_url) as connection:
        connection.execute(block("docs/deploy.md", "query: what waits").encode())
        connection.execute(span("docs/deploy.md", "SELECT ").encode())


def test_the_connections_of_a_process_are_counted_as_it_opens_them() -> None:
    listener, heartbeat, health = 1, 1, 2
    serve = bootstrap.CONTROL_CONNECTIONS + listener + health
    assert f"| `serve` | `PERDURE_DATABASE_CONNECTIONS` + {serve} |" in PAGE
    assert f"`PERDURE_DATABASE_CONNECTIONS` + `PERDURE_SLOTS` + {serve + heartbeat}, " in PAGE
    settings = Settings.read()
    each = settings.database_connections + serve
    worker = settings.database_connections + settings.slots + serve + heartbeat
    assert f"4 × {each} + 10 × {worker} = {4 * each + 10 * worker}" in PAGE


# -- metrics ----------------------------------------------------------------------------------------------------------


def known_metrics() -> dict[str, set[str]]:
    """The series of each metric, as queries name them, with the labels that it has."""
    found: dict[str, set[str]] = {}
    found |= {name: set(labels) for name, (_, labels) in metrics.LOOKED.items()}
    for metric in vars(metrics).values():
        for family in metric.describe() if isinstance(metric, Counter | Gauge | Histogram) else ():
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
            for suffix in suffixes:
                found[family.name + suffix] = set(metric._labelnames) | ({"le"} if suffix == "_bucket" else set())
    return found


def test_every_metric_that_is_named_is_exported() -> None:
    known = known_metrics()
    named = set(re.findall(r"\b(?:perdure|mcp_server)_[a-z_]+\b", PAGE))
    assert named - set(known) == set()
    exported = {family.name for family in REGISTRY.collect()}
    assert {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in named} - set(metrics.LOOKED) <= exported


def test_every_metric_of_ours_is_named_on_the_page() -> None:
    families = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in known_metrics()}
    assert {name for name in families if name not in PAGE} == set()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_labels_and_values_that_exist(rule: dict[str, Any]) -> None:
    known, expression = known_metrics(), rule["expr"]
    values = {
        "outcome": {outcome.value for outcome in Outcome},
        "reason": {kind.name.lower() for kind in ErrorKind},
        "activity": set(metrics.ACTIVITIES),
        "mcp_method_name": {"tasks/get"},
    }
    used = re.findall(r"\b((?:perdure|mcp_server)_[a-z_]+)(?:\{([^}]*)\})?", expression)
    assert used
    for name, selector in used:
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selector):
            assert label in known[name]
            assert set(value.split("|")) <= values[label]
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
    assert grouped <= set().union(*(known[name] for name, _ in used)) | {"instance", "job"}
    assert expression.count("(") == expression.count(")")
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


def test_counters_are_looked_at_as_rates_and_histograms_by_their_buckets() -> None:
    for rule in rules():
        for name in re.findall(r"\b(?:perdure|mcp_server)_[a-z_]+_total\b", rule["expr"]):
            assert re.search(rf"(rate|increase)\({name}", rule["expr"]), rule
        if "histogram_quantile" in rule["expr"]:
            assert "le" in rule["expr"] and "_bucket" in rule["expr"]  # noqa: PT018


def test_no_alert_is_there_twice() -> None:
    names = sorted(rule["alert"] for rule in rules())
    assert all(one != other for one, other in pairwise(names))
