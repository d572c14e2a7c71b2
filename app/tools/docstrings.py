"""What a docstring says about a function and its parameters, in Google's or Sphinx's style."""

from __future__ import annotations

import inspect
import re
from itertools import takewhile

_SECTION = re.compile(r"(Args|Arguments|Parameters|Params):")
_BREAK = re.compile(r":\w+.*:|(Args|Arguments|Parameters|Params|Returns?|Raises|Yields|Examples?|Notes?):$")
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*))?$")
_SPHINX = re.compile(r":(?:param|parameter|arg)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, on one line, and the description of each parameter by name."""
    lines = inspect.cleandoc(text or "").splitlines()
    summary = takewhile(lambda line: line.strip() and not _BREAK.match(line), lines)
    return " ".join(line.strip() for line in summary), _parameters(lines)


def _parameters(lines: list[str]) -> dict[str, str]:
    """An entry goes on over the lines that are indented deeper than its first one."""
    found: dict[str, list[str]] = {}
    entry: list[str] | None = None
    in_section, level = False, 0
    for line in filter(str.strip, lines):
        indent, said = len(line) - len(line.lstrip()), line.strip()
        if entry is not None and indent > level:
            entry.append(said)
            continue
        if indent == 0:
            in_section = bool(_SECTION.fullmatch(said))
        match = _SPHINX.match(said) or (_GOOGLE.match(said) if in_section and indent else None)
        entry, level = (found.setdefault(match[1], [match[2] or ""]), indent) if match else (None, 0)
    return {name: " ".join(filter(None, said)) for name, said in found.items()}
