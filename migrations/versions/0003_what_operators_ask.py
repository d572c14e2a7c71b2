"""What operators ask of many tasks: indexes of those that wait for answers or ended badly and of when tasks ended, a
function that turns a time into the task id of that time, and the ttl that a task was created with, which a retry needs.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UPGRADE = """\
CREATE INDEX tasks_by_status ON perdure.tasks (status, task_id)
    WHERE status IN ('input_required', 'failed', 'cancelled');
CREATE INDEX tasks_finished ON perdure.tasks USING brin (finished_at) WITH (autosummarize = on)
    WHERE finished_at IS NOT NULL;
ALTER TABLE perdure.task_requests ADD COLUMN ttl_ms BIGINT;
COMMENT ON COLUMN perdure.task_requests.ttl_ms IS 'Lifetime from creation that the task was given; NULL: no limit.';
CREATE FUNCTION perdure.task_id_at(moment timestamptz) RETURNS uuid
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid;
COMMENT ON FUNCTION perdure.task_id_at IS
    'The lowest id of a task that was created then: task_id >= perdure.task_id_at(now() - interval ''1 hour'') reads the primary key only from there on.'
"""

DOWNGRADE = """\
DROP FUNCTION perdure.task_id_at;
ALTER TABLE perdure.task_requests DROP COLUMN ttl_ms;
DROP INDEX perdure.tasks_finished;
DROP INDEX perdure.tasks_by_status
"""


def upgrade() -> None:
    for statement in UPGRADE.split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWNGRADE.split(";\n"):
        op.execute(statement)
