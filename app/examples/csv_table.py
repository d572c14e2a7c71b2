"""The table that `load_csv` loads into, in a schema of its own."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Column, Date, MetaData, Numeric, Table, Text, bindparam, func, insert, select
from sqlalchemy import inspect as inspect_database
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateSchema, CreateTable

from app import ToolError
from app.examples.csv_fields import Kind
from app.examples.csv_rows import Batch, Source

SCHEMA = "perdure_examples"

TYPES: dict[Kind, Any] = {"text": Text(), "integer": BigInteger(), "number": Numeric(), "date": Date()}


def table_of(name: str, source: Source, kinds: list[Kind]) -> Table:
    """The table that such rows go to."""
    columns = [Column(column, TYPES[kind]) for column, kind in zip(source.columns, kinds, strict=True)]
    return Table(name, MetaData(schema=SCHEMA), *columns)


async def create(table: Table, connection: AsyncConnection) -> None:
    """Create the table where there is none; another load that does the same waits.

    Raises:
        ToolError: there is one with other columns.
    """
    await connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(SCHEMA))))
    await connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
    await connection.execute(CreateTable(table, if_not_exists=True))
    there = await connection.run_sync(lambda sync: inspect_database(sync).get_columns(table.name, SCHEMA))
    if {each["name"]: str(each["type"]) for each in there} != {each.name: str(each.type) for each in table.columns}:
        raise ToolError(
            "The table has other columns than the file. Choose another table, or give `columns` their types."
        )


async def insert_rows(table: Table, rows: partial[tuple[list[list[Any]], Batch]], connection: AsyncConnection) -> Batch:
    """Read the rows of a chunk and insert them, a column an array: one statement, whose text is the same for each."""
    values, batch = await asyncio.to_thread(rows)
    names = [f"c{number}" for number in range(len(values))]
    arrays = [bindparam(n, type_=ARRAY(column.type)) for n, column in zip(names, table.columns, strict=True)]
    source = func.unnest(*arrays).table_valued(*names).render_derived()
    statement = insert(table).from_select(list(table.columns), select(*(source.c[name] for name in names)))
    await connection.execute(statement, dict(zip(names, values, strict=True)))
    return batch
