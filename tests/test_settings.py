"""Every setting is described, says its unit, is used, and refuses what it cannot be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from app.errors import SettingsError
from app.settings import Duration, Settings, unknown, variable

ROOT = Path(__file__).parents[1]
FIELDS = list(Settings.model_fields)
COUNTS = {
    "max_calls_per_minute",
    "max_connections",
    "database_connections",
    "port",
    "ops_port",
    "slots",
    "max_live_tasks",
    "max_inline_calls",
    "max_streams",
    "max_stream_tasks",
}
READ_BY = {
    "allow_anonymous": "check_exposure",
    "allowed_hosts": "known_hosts",
    "broader_scopes": "scopes",
    "database_url": "require_database_url",
    "direct_url": "direct",
    "request_state_key": "request_state_keys",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FIELDS:
        monkeypatch.delenv(variable(name), raising=False)


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_is_described_in_a_sentence(name: str) -> None:
    assert re.fullmatch(r"[A-Z].{20,}\.", Settings.model_fields[name].description or "")


@pytest.mark.parametrize("name", FIELDS)
def test_every_number_says_its_unit(name: str) -> None:
    field = Settings.model_fields[name]
    if field.annotation in (int, float) and get_args(Duration)[1] not in field.metadata:
        unit = name.rpartition("_")[2]
        assert name in COUNTS or unit in ("seconds", "bytes")
        assert name in COUNTS or unit in (field.description or "")


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_has_an_effect(name: str) -> None:
    readers = [ROOT / "app/bootstrap.py", *(ROOT / "app/cli").glob("*.py")]
    code = "\n".join(path.read_text() for path in readers)
    assert re.search(rf"\bsettings(?:\(\))?\.{READ_BY.get(name, name)}\b", code)


def test_without_an_environment_everything_has_a_default() -> None:
    settings = Settings.read()
    assert (settings.host, settings.port, settings.slots) == ("127.0.0.1", 8765, 16)
    assert (settings.lease_seconds, settings.grace_seconds, settings.poll_seconds) == (20, 25, 1)
    assert settings.retention == 86_400_000
    assert settings.notify is True
    assert settings.database_url is None


def test_the_environment_is_read_and_an_option_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_PORT", "80")
    monkeypatch.setenv("PERDURE_HOST", "::1")
    monkeypatch.setenv("PERDURE_RETENTION", "90s")
    monkeypatch.setenv("PERDURE_NOTIFY", "false")
    monkeypatch.setenv("PERDURE_ALLOWED_HOSTS", "tasks.example.com, tasks")
    settings = Settings.read(port=81, host=None)
    assert (settings.port, settings.host) == (81, "::1")
    assert settings.retention == 90_000
    assert settings.notify is False
    assert settings.allowed_hosts == ("tasks.example.com", "tasks")


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SLOTS", "")
    monkeypatch.setenv("DATABASE_URL", "")
    assert Settings.read().slots == 16
    with pytest.raises(SettingsError, match=r"^DATABASE_URL is not set: it takes postgresql://"):
        Settings.read().require_database_url()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_the_database_url_is_taken_as_it_is_and_its_password_does_not_show(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"{scheme}://me:hush@there/tasks\n")
    settings = Settings.read()
    assert settings.require_database_url() == f"{scheme}://me:hush@there/tasks"
    assert "hush" not in f"{settings!r} {settings} {settings.model_dump()}"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("PERDURE_SLOTS", "0", "greater than or equal to 1"),
        ("PERDURE_SLOTS", "many", "valid integer"),
        ("PERDURE_LEASE_SECONDS", "nan", "finite number"),
        ("PERDURE_POLL_SECONDS", "-1", "greater than or equal to 0.05"),
        ("PERDURE_RETENTION", "24", "not a duration"),
        ("PERDURE_NOTIFY", "perhaps", "valid boolean"),
        ("PERDURE_LOG_FORMAT", "xml", "'console' or 'json'"),
        ("PERDURE_LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("DATABASE_URL", "mysql://me:hush@there/tasks", "not the URL of a PostgreSQL database"),
        ("DATABASE_URL", "hush", "not the URL of a PostgreSQL database"),
        ("PERDURE_AUTH", "basic", "'none', 'keys' or 'oauth'"),
        ("PERDURE_OAUTH_ALGORITHMS", "HS256", "an algorithm that cannot be allowed"),
        ("PERDURE_OAUTH_ALGORITHMS", "RS256,none", "an algorithm that cannot be allowed"),
        ("PERDURE_OAUTH_ALGORITHMS", ",", "an algorithm that cannot be allowed"),
        ("PERDURE_OAUTH_ISSUER", "http://auth.example.com", "not an https URL without a query"),
        ("PERDURE_OAUTH_ISSUER", "https://auth.example.com/?a=b", "not an https URL without a query"),
        ("PERDURE_OAUTH_JWKS_URL", "file:///etc/hush", "not an https URL without a query"),
        ("PERDURE_PUBLIC_URL", "https://me:hush@mcp.example.com", "not an https URL without a query"),
        ("PERDURE_PUBLIC_URL", 'https://mcp.example.com/"', "not an https URL without a query"),
        ("PERDURE_CALL_SCOPES", 'a"b', "what cannot be a scope"),
        ("PERDURE_UI_PASSWORD", "hush hush hush!", "fewer than 16 characters"),
        ("PERDURE_BROADER_SCOPES", "admin", "not made of pairs broad>narrow"),
        ("PERDURE_BROADER_SCOPES", "a>b>c", "not made of pairs broad>narrow"),
    ],
)
def test_a_wrong_value_names_its_variable_and_what_that_takes(
    name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as refused:
        Settings.read()
    message = str(refused.value)
    field = next(field for field in FIELDS if variable(field) == name)
    assert message.startswith(f"{name} cannot be used: ")
    assert reason in message
    assert (Settings.model_fields[field].description or "-") in message
    assert "hush" not in message
    assert refused.value.__cause__ is None


def test_all_wrong_values_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SLOTS", "0")
    monkeypatch.setenv("PERDURE_PORT", "http")
    with pytest.raises(SettingsError, match=r"PERDURE_PORT .*PERDURE_SLOTS "):
        Settings.read()


def test_what_kubernetes_says_of_a_service_called_perdure_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {
        "PERDURE_PORT": "tcp://10.0.0.1:80",
        "PERDURE_OPS_PORT": "udp://10.0.0.2:53",
        "PERDURE_PORT_80_TCP": "tcp://10.0.0.1:80",
        "PERDURE_PORT_80_TCP_ADDR": "10.0.0.1",
        "PERDURE_SERVICE_HOST": "10.0.0.1",
        "PERDURE_SERVICE_PORT": "80",
        "PERDURE_SERVICE_PORT_HTTP": "80",
        "PERDURE_WORKERS_SERVICE_HOST": "10.0.0.3",
    }
    for name, value in links.items():
        monkeypatch.setenv(name, value)
    assert (Settings.read().port, Settings.read().ops_port) == (8765, 8766)
    assert Settings.read(port=80).port == 80
    assert list(unknown(links)) == []


def test_a_variable_that_is_no_setting_is_told_with_the_nearest_one() -> None:
    given = (
        "HOME",
        "DATABASE_URL",
        "PERDURE_TOKEN",
        "perdure_slots",
        "PERDURE_SLOT",
        "PERDURE_X_Y_Z",
        "PERDURE_REPORT",
    )
    assert list(unknown(given)) == [
        "PERDURE_REPORT is no setting, and ignored: is PERDURE_PORT meant?",
        "PERDURE_SLOT is no setting, and ignored: is PERDURE_SLOTS meant?",
        "PERDURE_X_Y_Z is no setting, and ignored.",
    ]


def test_what_does_not_go_through_a_pooler_goes_to_the_database_itself() -> None:
    pooled, direct = "postgresql://me@pooler/tasks", "postgresql://me@database/tasks"
    assert Settings.read(database_url=pooled).direct(pooled) == pooled
    assert Settings.read(database_url=pooled, pooled=True).direct(pooled) is None
    assert Settings.read(database_url=pooled, pooled=True, direct_url=direct).direct(pooled) == direct


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LocalHost"])
def test_on_this_machine_everybody_may_be_let_in(host: str) -> None:
    Settings.read(host=host).check_exposure()


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "192.0.2.1", "fe80::1", "tasks.example.com", "localhost.example.com", "127.1", "1270.0.1"],  # noqa: S104
)
def test_elsewhere_nobody_is_let_in_unasked_unless_that_is_said_twice(host: str) -> None:
    with pytest.raises(SettingsError, match=rf"who reaches {re.escape(host)}: set PERDURE_AUTH"):
        Settings.read(host=host).check_exposure()
    for said in ({"allow_anonymous": True}, {"auth": "keys"}, {"auth": "oauth"}):
        Settings.read(host=host, **said).check_exposure()


def test_a_key_of_the_environment_does_not_show() -> None:
    settings = Settings.read(auth="keys", api_keys="ada sha256:" + "ab" * 32)
    assert "abab" not in repr(settings) + str(settings) + str(settings.model_dump())
