"""What the commands share: their options, and how they read settings."""

from __future__ import annotations

import os
from typing import Annotated, Any

import structlog
import typer

from app.settings import Settings, unknown
from app.telemetry import logs

log = structlog.get_logger(__name__)

ToolModules = Annotated[
    list[str],
    typer.Option("--tools", metavar="MODULE", help="A dotted name or the path of a .py file; may be given again."),
]
Host = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen (PERDURE_HOST, else 127.0.0.1).")
]
Port = Annotated[
    int | None, typer.Option("--port", metavar="PORT", help="TCP port, 0 for a free one (PERDURE_PORT, else 8765).")
]


def read_settings(**given: Any) -> Settings:
    """Read the environment, with options going before it, and set the log up as it says.

    Raises:
        SettingsError: a value cannot be used.
    """
    settings = Settings.read(**given)
    logs.configure(settings.log_format, settings.log_level)
    return settings


def process_settings(**given: Any) -> Settings:
    """Read them for a process that stays: a variable that is ignored is told in its log.

    Raises:
        SettingsError: a value cannot be used.
    """
    settings = read_settings(**given)
    for ignored in unknown(os.environ):
        log.warning(ignored)
    return settings
