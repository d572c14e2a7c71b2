"""A short fault run; the long ones are by hand: `python -m tests.faults --minutes 20`."""

from __future__ import annotations

import pytest

from tests.faults.__main__ import read
from tests.faults.report import report
from tests.faults.run import Plan, run
from tests.support.pages import span

PLAN = Plan(seconds=38.0, seed=20, every_seconds=2.0, users=16, settle_seconds=30.0, long_outages=False)


@pytest.mark.timeout(300)
async def test_nothing_is_lost_and_nothing_runs_twice_whatever_is_killed() -> None:
    outcome = await run(PLAN)
    told = report(outcome)
    print(told)
    assert not outcome.findings, told
    assert min(outcome.injector.counts.values()) >= 2, told
    assert outcome.evidence.tasks, told


def test_the_readme_s_long_run_is_twenty_minutes() -> None:
    python, option, module, *words = span("README.md", "python -m tests.faults").split()
    assert (python, option, module) == ("python", "-m", "tests.faults")
    assert read(words).seconds == 20 * 60
