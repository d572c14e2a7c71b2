"""Declaring tools, and loading them from modules."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pydantic import BaseModel

from app.domain.task import Policy
from app.errors import DeclarationError
from app.tools.context import SyncToolContext, ToolContext
from app.tools.registry import Registry, Tool, ToolOptions, tool

HEAD = "from __future__ import annotations\nfrom app.tools.registry import tool\n"
HELLO = HEAD + '@tool\ndef hello() -> str:\n    """Greet."""\n    return "hi"\n'


@pytest.fixture(autouse=True)
def _leave_no_modules() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith("app."):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a module, and give its path."""

    def written(source: str, name: str = "mytools.py") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(source))
        return str(path)

    return written


def say(name: str = "you") -> str:
    """Say hello."""
    return f"Hello, {name}!"


# Declaring


def test_a_plain_decorator_and_one_with_arguments_leave_the_function_callable() -> None:
    plain, named = tool(say), tool(name="greet.you", title="Greeter", description="Greets.")(say)
    assert (plain("Luca"), named(name="Luca")) == ("Hello, Luca!", "Hello, Luca!")
    assert (plain.definition["name"], plain.definition["description"]) == ("say", "Say hello.")
    assert list(named.definition) == ["name", "title", "description", "inputSchema"]
    assert (named.name, named.title, named.description) == ("greet.you", "Greeter", "Greets.")


async def test_an_async_tool_is_awaited_also_behind_a_plain_decorator() -> None:
    def traced(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return wrapper

    @tool
    @traced
    async def add(a: int, b: int) -> int:
        """Add."""
        await asyncio.sleep(0)
        return a + b

    assert add.is_async
    assert list(add.definition["inputSchema"]["properties"]) == ["a", "b"]
    assert await add(1, b=2) == 3


def test_options_become_the_policy_in_milliseconds() -> None:
    decorate = tool(
        task="required",
        priority=0,
        timeout="90s",
        losses=0,
        ttl=timedelta(hours=1),
        retention="0s",
        answer_within="3d",
        poll_interval="1.5s",
    )
    options = decorate(say).options
    assert options.task == "required"
    assert options.to_policy() == Policy(
        priority=0,
        timeout_ms=90_000,
        losses=0,
        ttl_ms=3_600_000,
        retention_ms=0,
        answer_within_ms=259_200_000,
        poll_interval_ms=1_500,
    )


def test_how_a_call_is_answered_is_no_part_of_its_tasks_policy() -> None:
    asks_first = tool(starts="request", task="required")(say).options
    quick = tool(inline_budget="2s")(say).options
    assert (asks_first.starts, asks_first.inline_budget_ms) == ("request", None)
    assert (quick.starts, quick.inline_budget_ms) == ("task", 2_000)
    assert asks_first.to_policy() == quick.to_policy() == Policy()
    assert ToolOptions.model_validate_json(quick.model_dump_json()) == quick


def test_without_options_the_policy_is_the_default_one() -> None:
    assert tool(say).options.to_policy() == Policy() == ToolOptions().to_policy()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "two words"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"priority": 4}, "priority"),
        ({"priority": True}, "priority"),
        ({"losses": -1}, "losses"),
        ({"losses": 1000}, "losses"),
        ({"task": "sometimes"}, "task"),
        ({"timeout": "-5s"}, "timeout: .* negative"),
        ({"timeout": "0s"}, "timeout"),
        ({"ttl": "100000d"}, "ttl: .* longer than"),
        ({"answer_within": "soon"}, "answer_within: .* not a duration"),
        ({"retention": 5}, "retention"),
        ({"poll_interval": "2d"}, "poll_interval: .* longer than 1d"),
        ({"poll_interval": timedelta(0)}, "poll_interval"),
        ({"starts": "never"}, "starts"),
        ({"inline_budget": "0s"}, "inline_budget: .* no time at all"),
        ({"inline_budget": "61s"}, "inline_budget: .* longer than 60s"),
        ({"task": "never", "starts": "request"}, 'starts: a tool with task="never" .* on the request'),
        ({"task": "never", "inline_budget": "2s"}, 'inline_budget: a tool with task="never" .* on the request'),
        ({"task": "never", "timeout": "2s"}, "timeout: it is about tasks"),
        ({"task": "never", "ttl": "2s"}, "ttl: it is about tasks"),
        ({"task": "never", "losses": 1}, "losses: it is about tasks"),
        ({"task": "never", "priority": 0}, "priority: it is about tasks"),
        ({"task": "required", "inline_budget": "2s"}, 'inline_budget: a tool with task="required" .* with a task'),
        ({"starts": "request", "inline_budget": "2s"}, 'inline_budget: a tool with starts="request"'),
    ],
)
def test_wrong_options_are_refused_with_the_tool_the_file_and_the_option(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said) as refused:
        tool(**options)(say)
    assert repr(options.get("name", "say")) in str(refused.value)
    assert __file__ in str(refused.value)


class Opaque:
    """No type that JSON has."""


def _undescribed() -> None: ...
def _untyped(a, b: int) -> None: ...  # type: ignore[no-untyped-def]
def _star(*names: str) -> None: ...
def _stars(**names: str) -> None: ...
def _positional(name: str, /) -> None: ...
def _opaque(first: int, thing: Opaque) -> None: ...
def _function(first: int, call: Callable[[], int]) -> None: ...
def _returns(first: int) -> Opaque: ...  # type: ignore[empty-body]
def _two(a: ToolContext, b: SyncToolContext) -> None: ...
async def _sync(ctx: SyncToolContext) -> None: ...
def _nowhere(a: NotDefined) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _generator() -> Iterator[int]:
    yield 1


async def _stream() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (_untyped, "'a' has no type"),
        (_star, "'names' takes any number"),
        (_stars, "'names' takes any number"),
        (_positional, "'name' is positional-only"),
        (_opaque, "'thing' cannot be read from JSON"),
        (_function, "'call' cannot be read from JSON"),
        (_returns, "returns cannot be written as JSON"),
        (_two, "'a' and 'b' both take the context"),
        (_sync, "takes a ToolContext"),
        (_generator, "cannot yield"),
        (_stream, "cannot yield"),
    ],
)
def test_a_signature_that_cannot_be_a_tools_is_refused_where_it_is_declared(fn: Any, said: str) -> None:
    with pytest.raises(DeclarationError, match=said) as refused:
        tool(description="Does.")(fn)
    assert f"{fn.__name__!r} in {__file__}:{fn.__code__.co_firstlineno}" in str(refused.value)


def test_a_tool_needs_a_description() -> None:
    with pytest.raises(DeclarationError, match=r"'_undescribed'.* has no description: write a docstring"):
        tool(_undescribed)


@pytest.mark.parametrize("thing", [Opaque, functools.partial(say), len, tool(say), lambda: None])
def test_only_functions_with_a_name_are_tools(thing: Any) -> None:
    with pytest.raises(DeclarationError):
        tool(thing)


def test_what_is_never_defined_is_told_when_the_tools_are_gathered() -> None:
    late = tool(description="Does.")(_nowhere)
    with pytest.raises(DeclarationError, match=r"'_nowhere'.*'NotDefined', which is not defined; import it outside"):
        Registry([late])


def test_types_of_the_place_of_declaration_can_be_named() -> None:
    class Local(BaseModel):
        x: int

    @tool
    def local(thing: Local) -> Local:
        """Echo."""
        return thing

    assert local.bind({"thing": {"x": 1}}) == {"thing": Local(x=1)}
    assert json.loads(local.result(Local(x=1)))["structuredContent"] == {"x": 1}


# Gathering


def test_a_registry_is_sorted_and_looks_up_by_name() -> None:
    b, a = tool(name="b")(say), tool(name="a")(say)
    registry = Registry([b, a, b])
    assert (registry.names, list(registry), len(registry)) == (("a", "b"), [a, b], 2)
    assert registry.get("b") is b
    assert registry.get("c") is None


def test_the_catalogue_holds_what_clients_see_and_a_digest_of_it() -> None:
    (row,) = Registry([tool(ttl="1h")(say)]).catalogue()
    assert json.loads(row.definition) == tool(say).definition
    assert ToolOptions.model_validate_json(row.options).ttl_ms == 3_600_000
    assert row.digest == hashlib.sha256(f"{row.definition}\n{row.options}".encode()).hexdigest()
    assert row.digest != Registry([tool(ttl="2h")(say)]).catalogue()[0].digest
    assert row == Registry([tool(ttl="60m")(say)]).catalogue()[0]


# Loading


def test_a_file_is_loaded_with_its_siblings_and_later_types(write: Callable[..., str]) -> None:
    write("def helped() -> int:\n    return 7\n", "sibling_of_mytools.py")
    path = write(
        HEAD
        + """
from typing import Annotated
from pydantic import BaseModel, Field
from sibling_of_mytools import helped

@tool
def grow(tree: Tree, by: Annotated[int, Field(ge=1)] = 1) -> list[Leaf]:
    \"\"\"Grow a tree.\"\"\"
    return [Leaf(size=helped())]

class Tree(BaseModel):
    leaves: list[Leaf] = []

class Leaf(BaseModel):
    size: int
"""
    )
    grow = Registry.load([path]).get("grow")
    assert grow is not None
    bound = grow.bind({"tree": {"leaves": [{"size": 1}]}})
    assert pickle.loads(pickle.dumps(bound)) == bound  # noqa: S301
    assert json.loads(grow.result(grow(**bound)))["structuredContent"] == [{"size": 7}]


def test_a_file_runs_once_and_a_tool_counts_once(write: Callable[..., str], tmp_path: Path) -> None:
    path = write(HELLO)
    other = write(f"import importlib, sys\nhello = sys.modules[{_name(path)!r}].hello\nalso = hello\n", "other.py")
    first = Registry.load([path])
    assert list(Registry.load([path, str(tmp_path / "." / "mytools.py"), other])) == list(first)


def _name(path: str) -> str:
    return next(iter(Registry.load([path]))).fn.__module__


def test_a_dotted_name_is_found_in_the_current_folder(
    write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("", "shop_package/__init__.py")
    write(HELLO, "shop_package/tools.py")
    monkeypatch.chdir(tmp_path)
    assert Registry.load(["shop_package.tools"]).names == ("hello",)


def test_two_tools_of_one_name_are_refused_with_both_places(write: Callable[..., str]) -> None:
    one, two = write(HELLO, "one.py"), write(HELLO, "two.py")
    with pytest.raises(DeclarationError, match=r"'hello'.*same name") as refused:
        Registry.load([one, two])
    assert one in str(refused.value)
    assert two in str(refused.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\n", "has no tools: put @tool"),
        ("import not_a_module_at_all\n", "cannot be imported: ModuleNotFoundError: .*not_a_module_at_all"),
        ("def broken(:\n", "cannot be imported: SyntaxError"),
        ("1 / 0\n", "cannot be imported: ZeroDivisionError"),
        (HELLO.replace("@tool", "@tool(ttl='-1h')"), r"'hello' in .*mytools\.py:3: ttl: '-1h' is negative"),
        (HELLO.replace("()", "(a: Missing)"), r"'hello' in .*mytools\.py:3: .*'Missing'"),
    ],
)
def test_a_module_that_cannot_be_used_is_told_by_its_name(write: Callable[..., str], source: str, said: str) -> None:
    path = write(source)
    with pytest.raises(DeclarationError, match=said) as refused:
        Registry.load([path])
    assert path in str(refused.value)


def test_the_cause_of_a_failed_import_is_the_authors_own_error_and_the_next_try_runs_the_file_again(
    write: Callable[..., str],
) -> None:
    path = write("1 / 0\n")
    with pytest.raises(DeclarationError) as refused:
        Registry.load([path])
    assert isinstance(refused.value.__cause__, ZeroDivisionError)
    write(HELLO)
    assert Registry.load([path]).names == ("hello",)


@pytest.mark.parametrize("given", ["no_such_module", "app.no_such_module", "nowhere/tools.py", "tests", "..", "a b"])
def test_what_is_no_module_is_told_how_to_name_one(given: str) -> None:
    with pytest.raises(DeclarationError, match=given.replace(".", r"\.")):
        Registry.load([given])


def test_no_modules_make_an_empty_registry() -> None:
    assert not Registry.load([])


def test_a_tool_is_typed_as_its_function() -> None:
    declared: Tool[[str], str] = tool(say)
    assert declared("a") == "Hello, a!"
