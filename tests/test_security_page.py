"""What SECURITY.md says was tried, a test tries."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text()


def section(title: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def rows(title: str) -> list[list[str]]:
    """The rows of the table under a heading, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@cache
def names_in(path: Path) -> set[str]:
    """The names of the tests of a file."""
    found = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_bad_input_names_one_test_that_there_is() -> None:
    tried = rows("Bad input")
    assert len(tried) > 40
    for given, gets, named in tried:
        assert given, named
        assert gets, named
        found = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", named)
        assert found is not None, f"{given}: {named} names no test"
        assert found[2] in names_in(ROOT / found[1]), f"{named} is not there"


def test_no_test_stands_for_two_rows_and_no_row_is_there_twice() -> None:
    tried = rows("Bad input")
    for column in (0, 2):
        assert len({row[column] for row in tried}) == len(tried)


def test_every_rule_that_is_not_kept_has_a_reason() -> None:
    ruff = (ROOT / "pyproject.toml").read_text()
    ignored = set(re.findall(r'"(S\d{3})"', ruff))
    for path in (ROOT / "app").rglob("*.py"):
        for listed in re.findall(r"# noqa: ([A-Z0-9, ]+)", path.read_text()):
            ignored |= set(re.findall(r"\bS\d{3}\b", listed))
    explained = {rule for row in rows("Checks") for rule in re.findall(r"S\d{3}", row[0]) if row[2]}
    assert ignored == explained
