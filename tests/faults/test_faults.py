"""A short fault run; the long ones are by hand: `python -m tests.faults --minutes 20`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.report import report
from tests.faults.run import Plan, run
from tests.support.pages import run_shell, span

PLAN = Plan(seconds=38.0, seed=20, every_seconds=2.0, users=16, settle_seconds=30.0, long_outages=False)


@pytest.mark.timeout(300)
async def test_nothing_is_lost_and_nothing_runs_twice_whatever_is_killed() -> None:
    outcome = await run(PLAN)
    told = report(outcome)
    print(told)
    assert not outcome.findings, told
    assert min(outcome.injector.counts.values()) >= 2, told
    assert outcome.evidence.tasks, told


@pytest.mark.timeout(300)
def test_the_readme_s_long_run_is_run_for_some_seconds(tmp_path: Path) -> None:
    command, minutes = span("README.md", "python -m tests.faults").rsplit(" ", 1)
    told = run_shell(tmp_path, f"{command} {float(minutes) / 200} --every 1")
    assert re.match(r"seed \d+: faults for 0\.1 minutes\n", told)
    assert re.search(r"^faults +[1-9]", told, re.MULTILINE)
    assert told.splitlines()[-1].startswith("all held")
