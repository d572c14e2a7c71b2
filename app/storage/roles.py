"""Roles with no more rights than they need, for whoever runs Perdure against a database with others in it.

    perdure_app        what `perdure serve` and `perdure worker` run as: rows, and nothing else
    perdure_read       dashboards and people: what tasks there are and how they fare, without what they are about
    perdure_payloads   beside perdure_read: arguments, results, questions, answers, steps, and errors with tracebacks

They are groups: grant them to roles that can log in. The schema stays its migrator's.
"""

from __future__ import annotations

from sqlalchemy import LargeBinary, Table
from sqlalchemy.dialects.postgresql import JSON

from app.storage.schema import SCHEMA, VIEWS, metadata

APP, READ, PAYLOADS = "perdure_app", "perdure_read", "perdure_payloads"

OPEN = {"tools"}
"""Tables whose JSON is no caller's: the catalogue is shown to every client."""

CONFIDENTIAL = {("task_attempts", "error")}
"""Beside JSON and hashes: the text in which an exception may have quoted its arguments."""

UPDATED = {"tasks", "task_requests", "workers", "tools"}
DELETED = {"tasks", "idempotency_keys", "workers", "tools"}
"""Children go with their tasks: a foreign key deletes with its table's owner's rights."""

_CREATE = """\
DO $$ BEGIN
    CREATE ROLE {role} NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END $$;"""


def script() -> str:
    """SQL that makes the roles and gives them their rights; it can be run again, and is after each migration."""
    tables = metadata.sorted_tables
    return "\n".join(
        [
            *(_CREATE.format(role=role) for role in (APP, READ, PAYLOADS)),
            f"GRANT USAGE ON SCHEMA {SCHEMA} TO {APP}, {READ}, {PAYLOADS};",
            *(f"GRANT {_writes(table)} ON {SCHEMA}.{table.name} TO {APP};" for table in tables),
            *(f"GRANT SELECT ON {SCHEMA}.{name} TO {APP}, {READ};" for name in ("alembic_version", *VIEWS)),
            *(f"GRANT SELECT ({_plain(table)}) ON {SCHEMA}.{table.name} TO {READ};" for table in tables),
            *(f"GRANT SELECT ON {SCHEMA}.{table.name} TO {PAYLOADS};" for table in tables),
            "",
        ]
    )


def _writes(table: Table) -> str:
    rights = ["SELECT", "INSERT"]
    rights += ["UPDATE"] if table.name in UPDATED else []
    rights += ["DELETE"] if table.name in DELETED else []
    return ", ".join(rights)


def _plain(table: Table) -> str:
    return ", ".join(
        column.name
        for column in table.columns
        if (table.name, column.name) not in CONFIDENTIAL
        and (table.name in OPEN or not isinstance(column.type, (JSON, LargeBinary)))
    )
