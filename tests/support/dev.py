"""`perdure dev` in a process of its own, for clients to talk to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.command import perdure


@contextmanager
def running_dev(folder: Path, db_url: str, *tools: str | Path, **environment: str) -> Iterator[str]:
    """Run API and worker with these tools; the URL of the service, which can take calls."""
    options = [option for each in tools for option in ("--tools", each)]
    with perdure(folder, "dev", *options, "--port", "0", DATABASE_URL=db_url, **environment) as dev:
        url = dev.says(r"answers on (http://127\.0\.0\.1:\d+/mcp)")
        dev.says("worker started")
        yield url
