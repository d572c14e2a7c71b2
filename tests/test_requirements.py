"""Each demand that the Tasks extension makes of a server is shown to be met by a test that names it.

A test names demands with `@pytest.mark.requirement("R08")`. The numbers are ours; the words say what to look for.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent

DEMANDS = {
    "R01": "a call may be answered with a task or with its result, call by call",
    "R02": "no task for a request that does not declare the extension itself",
    "R03": "what cannot be served without a task is refused with the missing capability",
    "R04": "built so that other requests than tool calls can become tasks",
    "R05": "a handle has the result type `task`",
    "R06": "nothing else has",
    "R07": "a tool's own failure is no failed task",
    "R08": "the task is durable before its handle is sent",
    "R09": "and can be read from everywhere by then",
    "R10": "questions on the request come before the task",
    "R11": "the poll interval may change",
    "R12": "who polls faster may be slowed down; here nobody is",
    "R13": "a working task is shown as working",
    "R14": "a task that asks is shown with its questions",
    "R15": "with all that are open",
    "R16": "a completed task is shown with its result",
    "R17": "a cancelled task is shown as cancelled",
    "R18": "a failed task is shown with its error",
    "R19": "tasks/get answers `complete`",
    "R20": "a task past its time may be failed, and deleted later",
    "R21": "the time to live may change",
    "R22": "a question's key is unique over the task's life",
    "R23": "and never stands for another question, answered or not",
    "R24": "an update is acknowledged with nothing else",
    "R25": "and may be acknowledged before it shows",
    "R26": "an update of an unknown task is an error",
    "R27": "answers to what is not asked, or not any more, are passed over",
    "R28": "some of the answers may come alone",
    "R29": "the acknowledgement of an update is `complete`",
    "R30": "notifications/cancelled does not cancel a task",
    "R31": "a cancel is acknowledged with nothing else",
    "R32": "a cancel of an unknown task is an error",
    "R33": "a task may go on after the acknowledgement, and end otherwise",
    "R34": "the acknowledgement of a cancel is `complete`",
    "R35": "changes may be pushed",
    "R36": "whoever wants them must declare the extension",
    "R37": "no progress and no log messages on such a stream",
    "R38": "tasks/get of an unknown id: invalid params",
    "R39": "tasks/update and tasks/cancel of an unknown id: the same",
    "R40": "subscriptions to tasks without the extension: missing capability",
    "R41": "methods of tasks without the extension: missing capability",
    "R42": "errors say what is wrong",
    "R43": "a failed task has an error, and says why in its status message",
    "R44": "a tool result that says it failed is no failed task",
    "R45": "but a completed one with that result",
    "R46": "a JSON-RPC error is a failed task's error as it was",
    "R47": "a result is a completed task's result as it was",
    "R48": "an id may be all that a client needs; here never another owner's",
    "R49": "ids cannot be guessed",
    "R50": "a handle is flat, and holds no outcome and no question",
    "R51": "times are ISO 8601, lengths integers, ttlMs always there",
    "R52": "states change as drawn, and ended ones never",
    "R53": "an answered question is gone from the next read, the others stay",
    "R54": "a cancel of an ended task is acknowledged like any other",
    "R55": "the acknowledgement of a subscription lists its tasks, each notification is a whole task",
    "R56": "routing headers that match are taken, others refused",
    "R57": "an expired task is told apart from an unknown one, while it is known",
    "R58": "no other method under tasks/, no older capability offered or heeded",
    "R59": "each task request is checked for whose it is",
}
NOT_YET: set[str] = set()
"""Demands on what is not built."""


def _marks(node: ast.AST) -> list[ast.Call]:
    """Requirement markers among the decorators of a test."""
    decorators = getattr(node, "decorator_list", [])
    return [each for each in decorators if isinstance(each, ast.Call) and _is_mark(each.func)]


def _is_mark(node: ast.AST) -> bool:
    return ast.unparse(node) == "pytest.mark.requirement" if isinstance(node, ast.Attribute) else False


def _tests(module: ast.Module) -> Iterator[ast.AST]:
    """What pytest collects: functions of the module and of its classes."""
    for node in module.body:
        inside = node.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test") else [node]
        for each in inside:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test"):
                yield each


@cache
def named() -> dict[str, set[str]]:
    """The files in which tests name each id; read from their text, so that it does not matter which tests run."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("test_*.py")):
        module = ast.parse(path.read_text())
        marks = [mark for test in _tests(module) for mark in _marks(test)]
        assert len(marks) == sum(map(_is_mark, ast.walk(module))), f"{path.name} marks what is no test"
        for mark in marks:
            assert mark.args, f"{path.name} has a marker that names nothing"
            for argument in mark.args:
                found[ast.literal_eval(argument)].add(path.name)
    return found


def test_every_demand_is_named_by_a_test_unless_it_is_on_what_is_not_built() -> None:
    unnamed = DEMANDS.keys() - named().keys()
    assert {demand: DEMANDS[demand] for demand in unnamed - NOT_YET} == {}
    assert NOT_YET - unnamed == set(), "these are built, and no longer to be listed as not yet"


def test_no_test_names_a_demand_that_there_is_not() -> None:
    assert {demand: files for demand, files in named().items() if demand not in DEMANDS} == {}


def test_the_demands_are_numbered_without_a_gap() -> None:
    assert list(DEMANDS) == [f"R{number:02}" for number in range(1, 60)]
