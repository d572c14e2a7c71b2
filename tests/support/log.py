"""What sets up the log of a process, undone: the tests of a run share one."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import stamina.instrumentation
import structlog

from app.telemetry import logs


@pytest.fixture(autouse=True)
def log_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does to the log, it is as before afterwards, and all loggers can be captured again."""
    monkeypatch.setattr(logs, "CACHED", False)
    root = logging.getLogger()
    before = root.handlers, root.level
    yield
    if structlog.is_configured():
        root.handlers, root.level = before
        logging.captureWarnings(False)
        stamina.instrumentation.set_on_retry_hooks(None)
        structlog.reset_defaults()
