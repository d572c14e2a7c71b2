"""Reading CSV files in chunks: what is a row, what parses, and where a chunk ends."""

from __future__ import annotations

import os
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import ToolError
from app.examples import csv_rows
from app.examples.csv_fields import Kind, parses
from app.examples.csv_rows import Chunk, Source, describe, examine, read

KINDS: list[Kind] = ["integer", "text", "number", "date"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.csv"


def chunks_of(file: Path, source: Source, kinds: list[Kind]) -> list[Chunk]:
    chunks, start = [], source.start
    while start < source.size:
        chunks.append(examine(file, source, kinds, start))
        start = chunks[-1].end
    return chunks


def rows_of(file: Path, kinds: list[Kind], mend: bool = False, default: str | None = None) -> list[tuple[Any, ...]]:
    source = describe(file)
    rows, start = [], source.start
    for chunk in chunks_of(file, source, kinds):
        columns, _ = read(file, source, kinds, (start, chunk.end), mend, default)
        rows += list(zip(*columns, strict=True))
        start = chunk.end
    return rows


@pytest.mark.parametrize(
    ("kind", "well", "ill"),
    [
        ("text", ["", "x", "ü", "1"], ["\x00", "\udcff"]),
        ("integer", ["", "0", "-7", " 8 ", str(2**63 - 1)], ["x", "1.0", "1_000", str(2**63), "9" * 5000]),
        ("number", ["", "1", "-1.5", ".5", "1e3"], ["x", "NaN", "Infinity", "1_0.5", "1,5", "1e9999", "1" * 101]),
        ("date", ["", "2026-07-28"], ["28.07.2026", "2026-02-30", "x"]),
    ],
)
def test_a_field_parses_if_its_column_can_hold_it(kind: Kind, well: list[str], ill: list[str]) -> None:
    assert all(parses(kind, field) for field in well)
    assert not any(parses(kind, field) for field in ill)


def test_rows_become_values_and_empty_fields_null_or_empty_text(file: Path) -> None:
    file.write_text("id,name,price,day\n1,a,1.50,2026-07-28\n,,,\n")
    assert rows_of(file, KINDS) == [(1, "a", Decimal("1.50"), date(2026, 7, 28)), (None, "", None, None)]


@pytest.mark.parametrize(
    "text", ["\ufeffid,name\n1,x\n", '\ufeff"id", name \n1,x\n', "id,name\r\n\r\n1,x", "\nid,name\n1,x"]
)
def test_the_header_is_read_whatever_wrote_it(file: Path, text: str) -> None:
    file.write_bytes(text.encode())
    assert describe(file).columns == ["id", "name"]
    assert rows_of(file, ["integer", "text"]) == [(1, "x")]


@pytest.mark.parametrize("header", ["", "a,a", "a,", "a," + "b" * 64, 'a,"b\nc"', "a,b\x00"])
def test_a_header_that_cannot_name_columns_is_refused(file: Path, header: str) -> None:
    file.write_text(header)
    with pytest.raises(ToolError, match="header"):
        describe(file)


def test_bad_rows_are_counted_and_the_first_is_told(file: Path) -> None:
    file.write_text("id,name\n1,a\n2,b,c\nx,d\n")
    source = describe(file)
    chunk = examine(file, source, ["integer", "text"], source.start)
    assert (chunk.rows, chunk.bad, chunk.kinds) == (3, 2, ["integer"])
    assert chunk.first == (2, "it has 3 fields, not 2")


def test_bad_fields_get_the_default_and_rows_of_another_width_do_not(file: Path) -> None:
    file.write_text("id,n\n1,2\nx,y\n3\n")
    assert rows_of(file, ["integer", "integer"]) == [(1, 2)]
    assert rows_of(file, ["integer", "integer"], mend=True, default="0") == [(1, 2), (0, 0)]
    assert rows_of(file, ["integer", "integer"], mend=True) == [(1, 2), (None, None)]


@pytest.mark.parametrize("broken", [b'2,"never closed', b'2,"closed" late', b"2,\xff\xfe", b"2," + b"x" * 200_000])
def test_a_broken_row_costs_no_other(file: Path, broken: bytes) -> None:
    file.write_bytes(b'id,name\n1,"a\nb"\n' + broken + b"\n3,c\n")
    assert rows_of(file, ["integer", "text"]) == [(1, "a\nb"), (3, "c")]


def test_a_file_that_changes_is_read_no_further(file: Path) -> None:
    file.write_text("id\n1\n")
    source = describe(file)
    os.utime(file, ns=(0, 0))
    with pytest.raises(ToolError, match="has changed"):
        examine(file, source, ["integer"], source.start)
    file.unlink()
    with pytest.raises(ToolError, match="no such file"):
        read(file, source, ["integer"], (source.start, source.size), False, None)


LINES = st.lists(st.sampled_from(["1,a", "2,b", '3,"c\nd"', "", "x,e", '4,"open', "5", '6,"f"g', '"7","h"', "8,i,j"]))


@given(lines=LINES, rows=st.integers(1, 4))
def test_chunks_of_any_size_hold_the_same_rows(tmp_path_factory: pytest.TempPathFactory, lines: Any, rows: int) -> None:
    file = tmp_path_factory.mktemp("csv") / "file.csv"
    file.write_text("\n".join(["id,name", *lines]))
    whole = rows_of(file, ["integer", "text"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_rows, "CHUNK_ROWS", rows)
        assert rows_of(file, ["integer", "text"]) == whole
        source = describe(file)
        chunks = chunks_of(file, source, ["integer", "text"])
        assert sum(chunk.rows - chunk.bad for chunk in chunks) == len(whole)
