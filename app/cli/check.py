"""`perdure check`: is everything as it should be, and if not, what to do."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from pydantic import SecretStr
from rich.console import Console
from rich.text import Text

from app.cli.call_display import visible
from app.cli.common import read_settings
from app.cli.output import show_json
from app.domain.duration import UNITS, parse_duration
from app.errors import SettingsError
from app.http.auth.api_keys import ApiKeys
from app.process import run
from app.settings import Settings, unknown, variable
from app.storage.checkup import Finding, Level, check_up

STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def check(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Check the configuration, the database and the fleet; each line says ok, warn or fail, and what to do.

    Exits with 1 if something fails.
    """
    settings = read_settings()
    findings = run(_check(settings))
    if as_json:
        show_json({"settings": effective(settings), "checks": findings})
    else:
        _show(settings, findings)
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(1)


def effective(settings: Settings) -> dict[str, str | None]:
    """The value of each variable, as it can be written, without secrets."""
    return {variable(name): _written(name, getattr(settings, name)) for name in Settings.model_fields}


async def _check(settings: Settings) -> list[Finding]:
    url = settings.require_database_url()
    found = check_up(url, settings.direct(url), pooled=settings.pooled, notify=settings.notify)
    return [*_configuration(settings), _access(settings), *[finding async for finding in found]]


def _configuration(settings: Settings) -> list[Finding]:
    flaws = list(unknown(os.environ))
    if not settings.request_state_keys():
        flaws.append("PERDURE_REQUEST_STATE_KEY is not set: `perdure serve` does not start without, workers do.")
    return [Finding("settings", Level.WARN, says) for says in flaws] or [
        Finding("settings", Level.OK, "All can be used.")
    ]


def _access(settings: Settings) -> Finding:
    """Whether `perdure serve` could tell who is calling; nothing is fetched."""
    try:
        settings.check_exposure()
    except SettingsError as exposed:
        return Finding("access", Level.WARN, f"{exposed}.")
    try:
        if settings.auth == "keys":
            text = settings.api_keys.get_secret_value() if settings.api_keys else ""
            ApiKeys(text, settings.api_keys_file, settings.scopes())
    except SettingsError as unusable:
        return Finding("access", Level.FAIL, f"{unusable}.")
    if settings.auth == "oauth" and (settings.oauth_issuer is None or settings.public_url is None):
        says = "PERDURE_AUTH=oauth needs PERDURE_OAUTH_ISSUER and PERDURE_PUBLIC_URL."
        return Finding("access", Level.FAIL, says)
    return Finding("access", Level.OK, f"PERDURE_AUTH is {settings.auth}, and has what it needs.")


def _written(name: str, value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    durations = (getattr(how, "func", None) is parse_duration for how in Settings.model_fields[name].metadata)
    return _duration(value) if any(durations) and value is not None else _masked(value)


def _duration(milliseconds: int) -> str:
    """In the largest unit that leaves no rest."""
    unit = max((unit for unit, size in UNITS.items() if not milliseconds % size), key=UNITS.__getitem__)
    return f"{milliseconds // UNITS[unit]}{unit}"


def _masked(value: Any) -> str | None:
    if isinstance(value, SecretStr):
        return _without_password(value.get_secret_value())
    if isinstance(value, tuple):
        return ",".join(str(_masked(item)) for item in value)
    return None if value is None else str(value)


def _without_password(secret: str) -> str:
    """A URL keeps all but its password; of any other secret nothing is left."""
    from sqlalchemy import make_url

    if "://" not in secret:
        return "***"
    try:
        url = make_url(secret)
    except Exception:  # noqa: BLE001  # an unreadable URL is a secret like others
        return "***"
    hidden = {name: "***" for name in url.query if "password" in name}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def _show(settings: Settings, findings: list[Finding]) -> None:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(Text("Settings, as a process would have them that was started from here:", style="dim"))
    for name, value in effective(settings).items():
        if value is not None:
            console.print(Text(visible(f"{name}={value}"), style="dim"))
    for finding in findings:
        line = Text(f"{finding.level:<5}", style=STYLES[finding.level])
        console.print(line + Text(visible(f"{finding.name}: {finding.says}")))
