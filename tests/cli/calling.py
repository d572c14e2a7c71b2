"""`perdure call` without a terminal, in the test's own process: starting one takes longer than most calls."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from app.cli import cli
from app.errors import PerdureError


@dataclass(frozen=True)
class Called:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document that it printed."""
        return json.loads(self.out)


def call(*arguments: str, **environment: str) -> Called:
    """Run `perdure call` to its end, its input at its end and its output caught."""
    ran = CliRunner().invoke(cli, ["call", *arguments], env=environment)
    if isinstance(ran.exception, PerdureError):  # as app.cli.main tells it
        return Called(2, ran.stdout, f"{ran.stderr}perdure: {ran.exception}\n")
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return Called(ran.exit_code, ran.stdout, ran.stderr)
