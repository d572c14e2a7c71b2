"""Rows of a CSV file as values, read in chunks that start at a byte offset. Used by `load_csv`.

The file is in UTF-8, separated by commas; its first line names the columns.
"""

from __future__ import annotations

import csv
import os
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel

from app import ToolError
from app.examples.csv_fields import PARSERS, Kind, parsed, parses

CHUNK_ROWS = 5_000
_NAME_BYTES = 63


class Source(BaseModel):
    """The file as it was when the load began: it must stay so. `start` is the offset of the first row."""

    columns: list[str]
    start: int
    size: int
    mtime_ns: int


class Chunk(BaseModel):
    """A run of rows, and what is wrong with them.

    Attributes:
        end: the offset behind the last of them.
        bad: how many do not parse.
        kinds: the kinds of the fields that do not.
        first: the number of the first bad row, counted from 1 in this chunk, and what is wrong with it.
    """

    end: int
    rows: int = 0
    bad: int = 0
    kinds: list[Kind] = []
    first: tuple[int, str] | None = None


class Batch(BaseModel):
    """What became of the rows of a chunk; `loaded` counts those with a default value too."""

    loaded: int
    skipped: int
    defaulted: int


def describe(path: Path) -> Source:
    """Read the header.

    Raises:
        ToolError: there is no such file, or its header cannot name the columns of a table.
    """
    with _opened(path) as file:
        stat = os.fstat(file.fileno())
        records = _Records(file, 0)
        header = next(iter(records), None)
    columns = [name.strip() for name in header or []]
    if not columns:
        raise ToolError("The file has no header: its first line must name the columns.")
    if len(set(columns)) < len(columns) or not all(map(_names_a_column, columns)):
        raise ToolError(f"The header must name each column once, in 1 to {_NAME_BYTES} bytes.")
    return Source(columns=columns, start=records.end, size=stat.st_size, mtime_ns=stat.st_mtime_ns)


def examine(path: Path, source: Source, kinds: Sequence[Kind], start: int) -> Chunk:
    """Read the next rows, and see which do not parse.

    Raises:
        ToolError: the file is gone or has changed.
    """
    parsers = [PARSERS[kind] for kind in kinds]
    bad: set[Kind] = set()
    chunk = Chunk(end=start)
    with _opened(path, source) as file:
        records = _Records(file, start)
        for record in records:
            chunk.rows += 1
            if parsed(record, parsers) is None:
                flaws = _flaws(record, kinds)
                chunk.bad += 1
                chunk.first = chunk.first or (chunk.rows, _told(record, source.columns, kinds, flaws))
                bad.update(kinds[at] for at in flaws)
            if chunk.rows == CHUNK_ROWS:
                break
        chunk.end = records.end
    chunk.kinds = sorted(bad)
    return chunk


def read(
    path: Path, source: Source, kinds: Sequence[Kind], span: tuple[int, int], mend: bool, default: str | None
) -> tuple[list[list[Any]], Batch]:
    """Read the rows of a chunk as values, column by column.

    Args:
        span: the offsets where the chunk starts and ends.
        mend: whether fields that do not parse get the default; otherwise their rows are skipped. A row with too few or
            too many fields is always skipped.
        default: the value for such fields, None for NULL.

    Raises:
        ToolError: the file is gone or has changed.
    """
    parsers = [PARSERS[kind] for kind in kinds]
    rows: list[list[Any]] = []
    skipped = defaulted = 0
    with _opened(path, source) as file:
        for record in _Records(file, *span):
            if (row := parsed(record, parsers)) is None:
                if not mend or record is None or len(record) != len(kinds):
                    skipped += 1
                    continue
                row = _mended(record, kinds, default)
                defaulted += 1
            rows.append(row)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in kinds]
    return columns, Batch(loaded=len(rows), skipped=skipped, defaulted=defaulted)


def _flaws(record: list[str] | None, kinds: Sequence[Kind]) -> list[int]:
    """The columns whose fields do not parse; none where the record is not even a row."""
    if record is None or len(record) != len(kinds):
        return []
    return [at for at, (kind, field) in enumerate(zip(kinds, record, strict=True)) if not parses(kind, field)]


def _mended(record: list[str], kinds: Sequence[Kind], default: str | None) -> list[Any]:
    fields = [(kind, field if parses(kind, field) else default) for kind, field in zip(kinds, record, strict=True)]
    return [None if field is None else PARSERS[kind](field) for kind, field in fields]


def _told(record: list[str] | None, columns: Sequence[str], kinds: Sequence[Kind], flaws: Sequence[int]) -> str:
    if record is None:
        return "its quotes are wrong"
    if not flaws:
        return f"it has {len(record)} fields, not {len(columns)}"
    return f"{columns[flaws[0]]} is no {kinds[flaws[0]]}"


def _names_a_column(name: str) -> bool:
    encoded = name.encode("utf-8", "surrogateescape")
    return 0 < len(encoded) <= _NAME_BYTES and name.isprintable()


@contextmanager
def _opened(path: Path, source: Source | None = None) -> Iterator[BinaryIO]:
    if not os.path.isfile(path):
        raise ToolError("There is no such file in the folder for CSV files.")
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        if source is not None and (stat.st_size, stat.st_mtime_ns) != (source.size, source.mtime_ns):
            raise ToolError("The file has changed since the load began. Rows that were loaded before are in the table.")
        yield file


class _Records:
    """The records of a file between two offsets; None for one whose quotes are wrong. Blank lines are passed over.

    Attributes:
        end: the offset behind the last record that was given.
    """

    def __init__(self, file: BinaryIO, start: int, stop: int | None = None) -> None:
        self.end = start
        self._file = file
        self._stop = stop
        self._at = start

    def __iter__(self) -> Iterator[list[str] | None]:
        more = True
        while more:
            self._file.seek(self.end)
            self._at = self.end
            try:
                yield from self._well_formed()
                more = False
            except csv.Error:  # go on with the line after the one on which the record began
                self._file.seek(self.end)
                self.end += len(self._file.readline())
                yield None

    def _well_formed(self) -> Iterator[list[str]]:
        for record in csv.reader(self._lines(), strict=True):
            self.end = self._at
            if record:
                yield record

    def _lines(self) -> Iterator[str]:
        while self._stop is None or self._at < self._stop:
            line = self._file.readline()
            if not line:
                return
            text = line if self._at else line.removeprefix(BOM_UTF8)
            self._at += len(line)
            yield text.decode("utf-8", "surrogateescape")
