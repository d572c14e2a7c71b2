"""The recipe for the official client, as docs/clients.md has it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tests.support.pages import block


def _load() -> Any:
    module = ModuleType("recipe_of_the_page")
    sys.modules[module.__name__] = module  # pydantic looks up there what its annotations name
    exec(compile(block("docs/clients.md", "file: tasks.py"), "docs/clients.md", "exec"), module.__dict__)  # noqa: S102
    return module


recipe = _load()
