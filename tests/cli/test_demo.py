"""`perdure demo`, as a newcomer runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import run_perdure
from tests.support.pages import block, run_shell


@pytest.mark.timeout(180)
def test_the_demo_shows_a_task_survive_and_exits_0(tmp_path: Path, db_url: str) -> None:
    *install, demo = block("README.md", "command: demo").split(" && ")
    assert install == block("README.md", "command: check").replace("-e '.[dev]'", ".").split(" && ")[:-1]
    out = run_shell(tmp_path, demo, DATABASE_URL=db_url)  # CI installs the other one
    for line in ("Please enter your name.", "Hello, Luca!", "SIGKILL", "299994", "perdure.task_overview", "lost"):
        assert line in out
    assert out.rstrip().endswith("see README.md.")


def test_a_demo_that_cannot_reach_its_database_exits_non_zero(tmp_path: Path) -> None:
    code, _, err = run_perdure(tmp_path / "demo", "demo", DATABASE_URL="mysql://localhost/x")
    assert code == 2
    assert "DATABASE_URL" in err
