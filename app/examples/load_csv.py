"""A tool that does a job people have: load a large CSV file into a table.

The rows are checked, and the user is asked once what to do with those that do not parse; then they are loaded in
batches. Each batch is a transaction that also records that it has happened: whatever dies, at whatever moment, the next
attempt passes over the batches that are in the table and goes on behind them.

The file lies in the folder that the environment variable PERDURE_EXAMPLES_CSV_DIR names.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from app import Accepted, ToolContext, ToolError, tool
from app.examples.csv_fields import Kind, parses
from app.examples.csv_rows import Batch, Chunk, Source, describe, examine, read
from app.examples.csv_table import SCHEMA, create, insert_rows, table_of

FOLDER = "PERDURE_EXAMPLES_CSV_DIR"


class BadRows(BaseModel):
    """What to do with rows that do not parse."""

    action: (
        Annotated[Literal["skip"], Field(title="Leave them out")]
        | Annotated[Literal["stop"], Field(title="Load nothing at all")]
        | Annotated[Literal["default"], Field(title="Load them, with a default value")]
    ) = Field("skip", title="Rows that do not parse")
    value: str | None = Field(
        None, title="Default value", description="Goes in place of the fields that do not parse; nothing for NULL."
    )


class Loaded(BaseModel):
    """What the load came to."""

    table: str = Field(description="where the rows are")
    rows_loaded: int = Field(description="rows that are in the table now")
    rows_defaulted: int = Field(description="of these, rows in which a default value stands for what did not parse")
    rows_skipped: int = Field(description="rows that were left out")
    batches: int = Field(description="transactions that it took")


@tool
async def load_csv(
    ctx: ToolContext,
    path: Annotated[str, Field(min_length=1, max_length=1000)],
    table: Annotated[str, Field(pattern="^[a-z_][a-z0-9_]{0,62}$")],
    columns: dict[str, Kind] | None = None,
) -> Loaded:
    """Load a CSV file into a table, which is created if there is none.

    Args:
        path: the file, relative to the folder for CSV files. In UTF-8, with commas, the first line names the columns.
        table: the table's name; rows are added to those that it has.
        columns: what the columns hold, by name; those that are not named hold text.
    """
    file = inside(path)
    source = await ctx.step("file", partial(asyncio.to_thread, describe, file), returns=Source)
    kinds = kinds_of(source, columns or {})
    chunks = await _examined(ctx, file, source, kinds)
    policy = await _policy(ctx, chunks)
    target = table_of(table, source, kinds)
    await ctx.transaction("table", partial(create, target))
    await ctx.status(f"Loading {sum(chunk.rows for chunk in chunks):,} rows")
    batches: list[Batch] = []
    start = source.start
    for number, chunk in enumerate(chunks):
        rows = partial(read, file, source, kinds, (start, chunk.end), policy.action == "default", policy.value)
        batches.append(await ctx.transaction(f"batch-{number:06}", partial(insert_rows, target, rows), returns=Batch))
        start = chunk.end
        done = size(source) + start - source.start
        await ctx.progress(done, 2 * size(source), f"Loaded {sum(batch.loaded for batch in batches):,} rows")
    return Loaded(
        table=f"{SCHEMA}.{table}",
        rows_loaded=sum(batch.loaded for batch in batches),
        rows_defaulted=sum(batch.defaulted for batch in batches),
        rows_skipped=sum(batch.skipped for batch in batches),
        batches=len(batches),
    )


def size(source: Source) -> int:
    """Bytes that hold rows. They are gone through twice, to check and to load, so that progress is told in them."""
    return source.size - source.start


def inside(path: str) -> Path:
    """The file of that name in the folder, wherever links lead.

    Raises:
        ToolError: it lies outside of the folder, or there is no folder.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        raise ToolError(f"No folder for CSV files is configured: {FOLDER} names it, for the worker.")
    root = Path(folder).resolve()
    try:
        file = (root / path).resolve()
    except (OSError, ValueError, RuntimeError):  # a loop of links, a name that no file can have
        raise ToolError("The path is not that of a file.") from None
    if not file.is_relative_to(root):
        raise ToolError("The path leads out of the folder for CSV files.")
    return file


def kinds_of(source: Source, columns: dict[str, Kind]) -> list[Kind]:
    """What each column of the file holds.

    Raises:
        ToolError: a column is named that the file does not have.
    """
    if not columns.keys() <= set(source.columns):
        raise ToolError("`columns` names a column that is not in the file's header.")
    return [columns.get(name, "text") for name in source.columns]


async def _examined(ctx: ToolContext, file: Path, source: Source, kinds: list[Kind]) -> list[Chunk]:
    chunks: list[Chunk] = []
    start = source.start
    while start < source.size:
        look = partial(asyncio.to_thread, examine, file, source, kinds, start)
        chunk = await ctx.step(f"check-{len(chunks):06}", look, returns=Chunk)
        chunks.append(chunk)
        start = chunk.end
        done = start - source.start
        await ctx.progress(done, 2 * size(source), f"Checked {sum(chunk.rows for chunk in chunks):,} rows")
    return chunks


async def _policy(ctx: ToolContext, chunks: list[Chunk]) -> BadRows:
    """What to do with the rows that do not parse; asked only where there are some, and before anything is loaded."""
    bad = sum(chunk.bad for chunk in chunks)
    if not bad:
        return BadRows()
    rows = sum(chunk.rows for chunk in chunks)
    message = f"{bad:,} of {rows:,} rows do not parse. {_first(chunks)}. What is to be done with them?"
    answer = await ctx.elicit("bad-rows", message, _form({kind for chunk in chunks for kind in chunk.kinds}))
    if not isinstance(answer, Accepted):
        raise ToolError(
            f"Nothing was loaded: {bad:,} of {rows:,} rows do not parse, and what to do with them is not known."
        )
    if answer.content.action == "stop":
        raise ToolError(f"Nothing was loaded, as was asked for: {bad:,} of {rows:,} rows do not parse.")
    return answer.content


def _first(chunks: list[Chunk]) -> str:
    before = 0
    for chunk in chunks:
        if chunk.first is not None:
            number, flaw = chunk.first
            return f"The first is row {before + number:,}: {flaw}"
        before += chunk.rows
    raise AssertionError("no row is bad")


def _form(kinds: set[Kind]) -> type[BadRows]:
    """The form that takes only a default value which fits all these kinds; for another one the user is asked again."""

    class FittingBadRows(BadRows):
        @field_validator("value")
        @classmethod
        def _fits(cls, value: str | None, info: ValidationInfo) -> str | None:
            if value is not None and info.data.get("action") == "default":
                unfit = [kind for kind in get_args(Kind) if kind in kinds and not parses(kind, value)]
                if unfit:
                    raise ValueError(f"does not stand for: {', '.join(unfit)}")
            return value

    return FittingBadRows
