"""`perdure demo`, where it cannot do what tests/test_installs.py sees it do."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import run_perdure


def test_a_demo_that_cannot_reach_its_database_exits_non_zero(tmp_path: Path) -> None:
    code, _, err = run_perdure(tmp_path / "demo", "demo", DATABASE_URL="mysql://localhost/x")
    assert code == 2
    assert "DATABASE_URL" in err
