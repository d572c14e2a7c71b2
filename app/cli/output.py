"""What operators' commands print: tables on a terminal, tab-separated text in a pipe, JSON where it is asked for.

Whatever clients or tools have written is escaped: it cannot move a terminal's cursor, nor add a line or a column.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any
from uuid import UUID

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from app.cli.call_display import visible
from app.storage.inspection import Payload

GAP, NARROWEST = 2, 8

Cell = str | int | float | UUID | datetime | timedelta | None


def show_table(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, elastic: Collection[str] = ()) -> None:
    """Print rows: under these headers on a terminal, without any in a pipe.

    Args:
        elastic: the columns that are cut where the terminal is too narrow; the others stay as wide as they are.
    """
    if not sys.stdout.isatty():
        for row in rows:
            _print("\t".join(_cell(value) for value in row))
        return
    shown = [[_short(value) for value in row] for row in rows]
    room = Console().width
    natural = [max(map(cell_len, column)) for column in zip_longest(headers, *shown, fillvalue="")]
    widths = _fitted(natural, [header in elastic for header in headers], room)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header, width in zip(headers, widths, strict=True):
        table.add_column(header, no_wrap=True, overflow="ellipsis", width=width)
    for row in shown:
        table.add_row(*map(Text, row))
    # Where even that is too narrow, the terminal wraps: an id that is cut is of no use.
    needed = sum(widths) + GAP * (len(widths) - 1)
    Console(highlight=False, markup=False, emoji=False, width=max(room, needed)).print(table)


def show_json(value: Any) -> None:
    """Print one JSON document on one line."""
    print(json.dumps(document(value)), flush=True)


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(visible(text), file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Lines for people, on stdout."""
    _print(visible(text))


def give_up_printing(fault: OSError) -> bool:
    """Since stdout failed, print nothing any more; what is printed from now on is lost without an error.

    Returns:
        Whether anybody misses it, which is then said: a reader that has gone, such as `head`, does not.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    if isinstance(fault, BrokenPipeError):
        return False
    say(f"perdure: The output cannot be written: {fault.strerror}")
    return True


def one_line(text: str) -> str:
    """Someone else's text, so that it stays on its line and in its column."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def progress() -> Progress:
    """A bar on stderr, on a terminal only."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


def document(value: Any) -> Any:
    """A value as JSON has it: payloads as they are, times in ISO 8601, durations in seconds, as their names say."""
    if isinstance(value, Payload) and value.whole:
        return json.loads(value.text)
    if is_dataclass(value):
        named = ((field.name, getattr(value, field.name)) for field in fields(value))
        return dict(_member(name, item) for name, item in named)
    if isinstance(value, dict):
        return dict(_member(name, item) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return [document(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, UUID):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def ago(span: timedelta | None) -> str:
    """A duration in its two largest units."""
    if span is None:
        return ""
    seconds = int(span.total_seconds())
    if seconds < 60:
        return f"{span.total_seconds():.1f}s" if 0 <= seconds < 10 else f"{seconds}s"
    units = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    at = next(index for index, (size, _) in enumerate(units) if seconds >= size)
    (size, unit), (lower, lower_unit) = units[at], units[at + 1]
    return f"{seconds // size}{unit}{seconds % size // lower:02}{lower_unit}"


def _fitted(natural: Sequence[int], elastic: Sequence[bool], room: int) -> list[int]:
    """The widths of columns: the widest of the elastic ones give way, as far as there is not room for all."""
    widths = list(natural)
    while sum(widths) + GAP * (len(widths) - 1) > room:
        widest = max((index for index, gives in enumerate(elastic) if gives), key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths


def _member(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, timedelta):
        return f"{name}_seconds", value.total_seconds()
    return name, document(value)


def _cell(value: Cell) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.3f}"
    return "" if value is None else one_line(str(value))


def _short(value: Cell) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return ago(value) if isinstance(value, timedelta) else _cell(value)


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))
