"""The set of tools that a process has, loaded from the modules that it is given."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from app.errors import DeclarationError
from app.storage.rows import CatalogueRow
from app.tools.declaration import Tool, tool
from app.tools.form_calls import check_forms
from app.tools.loading import load_module
from app.tools.options import ToolOptions
from app.wire.envelope import dumps

__all__ = ["Registry", "Tool", "ToolOptions", "tool"]


class Registry:
    """The tools of a process, in the order of their names.

    Raises:
        DeclarationError: two tools have the same name, or one cannot be a tool as it is declared.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        found: dict[str, Tool] = {}
        for each in tools:
            other = found.setdefault(each.name, each)
            if other is not each:
                reason = f"the tool in {other.where} has the same name; give one of them another with name=…"
                raise each.refused(reason)
            _ = each.definition  # annotations that named what came later in their module can be read by now
            if (flaw := check_forms(each.fn)) is not None:
                raise each.refused(flaw)
        self._tools = dict(sorted(found.items()))

    @classmethod
    def load(cls, modules: Sequence[str]) -> Registry:
        """Import modules, by dotted name or path of a `.py` file, and take the tools that are their attributes.

        Raises:
            DeclarationError: a module cannot be imported or has no tool, or a tool cannot be one as it is declared.
        """
        return cls(each for given in modules for each in _tools_in(given))

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names, sorted."""
        return tuple(self._tools)

    def get(self, name: str) -> Tool | None:
        """The tool of that name, None for none."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def durable(self) -> list[Tool]:
        """The tools that run as tasks: all but those with `task="never"`."""
        return [each for each in self if each.options.task != "never"]

    def catalogue(self) -> list[CatalogueRow]:
        """The durable tools as the catalogue holds them; a digest changes with anything that clients or the API see."""
        return [_row(each) for each in self.durable()]


def _row(declared: Tool) -> CatalogueRow:
    definition, options = dumps(declared.definition), dumps(declared.options.model_dump())
    digest = hashlib.sha256(f"{definition}\n{options}".encode()).hexdigest()
    return CatalogueRow(declared.name, definition, options, digest)


def _tools_in(given: str) -> list[Tool]:
    found = [value for value in vars(load_module(given)).values() if isinstance(value, Tool)]
    if not found:
        raise DeclarationError(f"{given} has no tools: put @tool on a function in it")
    return found
