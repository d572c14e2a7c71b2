"""Bounds of a task's policy: a row with a duration that no timestamp can hold would make the claim of every worker fail.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

LONGEST_MS = 315_360_000_000
DURATIONS = {"retention_ms": 0, "timeout_ms": 1, "answer_within_ms": 1}


def upgrade() -> None:
    for name, shortest in DURATIONS.items():
        op.execute(
            f"ALTER TABLE perdure.task_requests ADD CONSTRAINT task_requests_{name} "
            f"CHECK ({name} BETWEEN {shortest} AND {LONGEST_MS})"
        )
    op.execute("ALTER TABLE perdure.task_requests ADD CONSTRAINT task_requests_loss_limit CHECK (loss_limit >= 0)")
    op.execute(f"ALTER TABLE perdure.tasks ADD CONSTRAINT tasks_ttl_ms CHECK (ttl_ms BETWEEN 0 AND {10 * LONGEST_MS})")


def downgrade() -> None:
    op.execute("ALTER TABLE perdure.tasks DROP CONSTRAINT tasks_ttl_ms")
    for name in (*DURATIONS, "loss_limit"):
        op.execute(f"ALTER TABLE perdure.task_requests DROP CONSTRAINT task_requests_{name}")
