"""The benchmarks run and print what they measured; what they measure is for whoever leaves the machine alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(180)
def test_a_path_is_measured_beside_its_floor() -> None:
    brief = ["--seconds", "0.3", "--passes", "1", "--connections", "2", "--slots", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "never", *brief],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(static|floor service|perdure)\b.*?([\d,]+)", done.stdout, re.MULTILINE)
    assert {name for name, _ in rows} >= {"floor service", "perdure"}, done.stdout
    assert all(int(rate.replace(",", "")) > 0 for _, rate in rows)
