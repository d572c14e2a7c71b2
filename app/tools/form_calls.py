"""The forms that a tool's source names, looked at when it is loaded rather than when a user waits."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from app.errors import UsageError
from app.tools.forms import form_schema


def check_forms(fn: Callable[..., Any]) -> str | None:
    """Say what is wrong with the first form that fn asks for and that no client could show; None if all are well.

    Seen are the calls of `elicit` on a parameter of fn whose schema is written out, or is the name of a model or a dict
    outside of fn. What else a tool asks for is looked at when it asks.
    """
    inner = inspect.unwrap(fn)
    for node in _schemas(inner):
        schema = _value(node, _names(inner))
        if isinstance(schema, dict) or (isinstance(schema, type) and issubclass(schema, BaseModel)):
            try:
                form_schema(schema)
            except UsageError as refused:
                return str(refused)
    return None


def _schemas(fn: Callable[..., Any]) -> Iterator[ast.expr]:
    """The third arguments of the calls of `elicit`, but for names that fn itself gives a value."""
    tree = _tree(fn)
    given = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound = given | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _elicits(call.func, given):
            named = [keyword.value for keyword in call.keywords if keyword.arg == "schema"]
            for node in [*call.args[2:3], *named]:
                if _root(node) not in bound:
                    yield node


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _elicits(called: ast.expr, given: set[str]) -> bool:
    if not isinstance(called, ast.Attribute) or called.attr != "elicit":
        return False
    return isinstance(called.value, ast.Name) and called.value.id in given


def _tree(fn: Callable[..., Any]) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(fn)))
    except (OSError, TypeError, SyntaxError):  # there is no source, or it is part of a larger expression
        return ast.Module([], [])


def _names(fn: Callable[..., Any]) -> dict[str, Any]:
    code, cells = getattr(fn, "__code__", None), getattr(fn, "__closure__", None) or ()
    closure = dict(zip(code.co_freevars, cells, strict=True)) if code else {}
    return getattr(fn, "__globals__", {}) | {name: _content(cell) for name, cell in closure.items()}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value yet
        return None


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, names), node.attr, None)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):  # made of other values
        return None
