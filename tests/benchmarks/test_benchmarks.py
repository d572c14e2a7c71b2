"""The benchmarks run and print what they measured; what they measure is for whoever leaves the machine alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import HTTP
from tests.support.pages import block, run_shell

BRIEF = "--seconds 0.3 --passes 1 --connections 2 --slots 2"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("line", block("docs/benchmarks.md", "command: measure").splitlines(), ids=["all", "some"])
def test_the_paths_that_the_page_asks_for_are_measured_beside_their_floors(line: str, tmp_path: Path) -> None:
    command = line.partition("#")[0].strip()
    asked = command.split("tests.benchmarks")[1].partition(" --")[0].split()
    assert set(asked) <= HTTP.keys()
    _, *tables = run_shell(tmp_path, f"{command} {BRIEF} --waiting 50 --streams 5").split("\n\n")
    measured = tables[: len(asked or HTTP)]
    for table in measured:
        rows = re.findall(r"^(floor service|perdure)\b.*? {2,}([\d,]+) ", table, re.MULTILINE)
        floors = set() if "notifications" in table else {"floor service"}
        assert {name for name, _ in rows} == {"perdure"} | floors, table
        assert all(int(rate.replace(",", "")) > 0 for _, rate in rows)
    if asked:
        assert [table.split()[1].rstrip(",") for table in tables] == asked
    else:
        drained, pushed = tables[len(measured) :]
        assert re.search(r"^perdure worker, 2 slots +[1-9].*\nperdure worker, 400 slots +[1-9]", drained, re.MULTILINE)
        assert re.search(r"^from change to bytes +p50 \d", pushed, re.MULTILINE)


@pytest.mark.timeout(180)
def test_what_lasts_is_measured_as_the_page_asks_for_it(tmp_path: Path) -> None:
    for line in block("docs/benchmarks.md", "command: measure what lasts").splitlines():
        command = line.partition("#")[0].strip()
        measured = run_shell(tmp_path, f"{command} {BRIEF} --finished 500 --minutes 0.05").split("\n\n")[1:]
        for path in command.split("tests.benchmarks ")[1].split(" --")[0].split():
            if path == "memory":
                assert re.search(r"^ +[\d.]+( +[\d.]{4,}){2}$", measured[0], re.MULTILINE)
                assert re.search(r"warm to the end: API [+-][\d.]+ %, worker [+-][\d.]+ %$", measured[0].strip())
                continue
            tables, measured = measured[:3], measured[3:]
            for table in tables:
                figures = [float(row.split()[-1]) for row in table.strip().splitlines()[2:]]
                assert (figures[0], len(figures)) == (1.0, 2), table
                assert figures[1] > 0
