"""`perdure workers` and `perdure tools`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.operating import execute, make_each, run
from tests.storage.scene import TOOL
from tests.support.command import run_perdure

WORKERS = """
INSERT INTO perdure.workers (worker_id, host, pid, version, tools, slots, lease_ms, beat_at)
VALUES (gen_random_uuid(), 'gone', 7, '0', '{one,two}', 4, 20000, now() - interval '1 hour')"""


def test_workers_are_listed_with_what_they_run_and_whether_they_live(db_url: str, tmp_path: Path) -> None:
    make_each(db_url)
    execute(db_url, WORKERS)
    code, out, _ = run_perdure(tmp_path / "run", "workers", DATABASE_URL=db_url)
    gone, alive = [line.split("\t") for line in sorted(out.splitlines(), key=lambda line: "\talive\t" in line)]
    assert code == 0
    assert (gone[1:4], gone[5], gone[9]) == (["lost", "gone", "7"], "0", "one, two")
    assert (alive[1:4], alive[5:7], alive[9]) == (["alive", "here", "1"], ["2", "4"], TOOL)
    documents = run(db_url, "workers", "--json").documents
    (lost,) = (worker for worker in documents if worker["state"] == "lost")
    assert (lost["tools"], lost["running"]) == (["one", "two"], 0)
    assert lost["since_beat_seconds"] > 3000


def test_tools_are_listed_with_what_waits_for_them(db_url: str) -> None:
    made = make_each(db_url)
    lines = {line[0]: line[1:] for line in run(db_url, "tools").lines}
    assert len(lines) == len(made) - 3
    assert lines[TOOL][:2] == ["1", "1"]
    assert float(lines[TOOL][2]) >= 0
    (queued,) = (tool for tool in run(db_url, "tools", "--json").documents if tool["tool"] == TOOL)
    assert (queued["queued"], queued["running"], queued["workers"]) == (1, 0, 1)


def test_none_is_exit_code_1(db_url: str) -> None:
    for command in ("workers", "tools"):
        ran = run(db_url, command)
        assert (ran.code, ran.out) == (1, "")
        assert "worker" in ran.err
