"""`perdure tasks`: what operators see and do from a shell, in a pipe and at a terminal."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import make_url

from app.storage.operator import BATCH
from tests.cli.operating import NASTY, STATES, execute, make_each, make_many, make_nasty, run, statuses
from tests.storage.scene import OWNER
from tests.support.command import run_perdure
from tests.support.terminal import at_terminal

COLUMNS = 9


@pytest.fixture
def made(db_url: str) -> dict[str, UUID]:
    """A task in each state."""
    return make_each(db_url)


def into(where: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with its output going there, as a shell has it; the exit code is the command's."""
    script = f'{shlex.quote(sys.executable)} -m app "$@" {where}; exit ${{PIPESTATUS[0]}}'
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    return subprocess.run(
        ["/bin/bash", "-c", script, "bash", *arguments],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def ids(lines: list[list[str]]) -> set[UUID]:
    """The first column."""
    return {UUID(line[0]) for line in lines}


# -- list -------------------------------------------------------------------------------------------------------------


def test_the_command_lists_tasks_as_tab_separated_lines(db_url: str, made: dict[str, UUID], tmp_path: Path) -> None:
    code, out, err = run_perdure(tmp_path / "run", "tasks", "list", DATABASE_URL=db_url)
    lines = [line.split("\t") for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert ids(lines) == set(made.values())
    assert {len(line) for line in lines} == {COLUMNS}
    failed = next(line for line in lines if UUID(line[0]) == made["failed"])
    assert failed[2:6] + failed[8:] == [OWNER, "failed", "ended", "1", "It broke"]


@pytest.mark.parametrize(
    ("options", "states"),
    [
        (("--status", "failed", "--status", "input_required"), {"failed", "parked"}),
        (("--activity", "waiting"), {"parked"}),
        (("--activity", "ended", "--status", "completed"), {"completed"}),
        (("--owner", OWNER, "--activity", "queued"), {"queued"}),
        (("--tool", "weigh"), {"queued"}),
        (("--error", "it BROKE"), {"failed"}),
        (("--since", "1h"), set(STATES)),
        (("--since", "2000-01-01", "--before", "2099-12-31T12:00:00+02:00"), set(STATES)),
        (("--finished-since", "1h"), {"completed", "failed", "cancelled"}),
        (("--before", "0s", "--since", "90s"), set(STATES)),
        (("--before", "1h"), set()),
        (("--finished-before", "1h"), set()),
        (("--owner", "nobody"), set()),
    ],
)
def test_options_narrow_the_list_and_nothing_is_exit_code_1(
    options: tuple[str, ...], states: set[str], db_url: str, made: dict[str, UUID]
) -> None:
    ran = run(db_url, "tasks", "list", *options)
    assert ids(ran.lines) == {made[state] for state in states}
    assert ran.code == (0 if states else 1)
    assert bool(ran.err) is not bool(states)


def test_pages_follow_each_other(db_url: str, made: dict[str, UUID]) -> None:
    seen: list[UUID] = []
    after: list[str] = []
    while True:
        ran = run(db_url, "tasks", "list", "--limit", "3", *after)
        seen += [UUID(line[0]) for line in ran.lines]
        if not (more := re.search(r"--after (\S+)", ran.err)):
            break
        after = ["--after", more[1]]
    assert seen == sorted(made.values(), reverse=True)


def test_json_is_a_document_a_task_with_names_that_stay(db_url: str, made: dict[str, UUID]) -> None:
    (task,) = run(db_url, "tasks", "list", "--status", "failed", "--json").documents
    assert task["task_id"] == str(made["failed"])
    assert task.keys() == {
        "task_id", "tool", "owner", "status", "status_message", "activity", "priority", "attempts", "losses",
        "failures", "questions_open", "progress", "progress_total", "worker_id", "worker_host", "created_at",
        "updated_at", "started_at", "deadline_at", "finished_at", "expires_at", "age_seconds",
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--status", "done"),
        ("list", "--since", "yesterday"),
        ("list", "--limit", "0"),
        ("show", "1"),
        ("show",),
        ("cancel",),
        ("cancel", "--yes"),
        ("cancel", "--error", "", "--yes"),
        ("cancel", "--error", " ", "--status", "working", "--yes"),
        ("cancel", "--tool", "", "--yes"),
        ("list", "--owner", ""),
        ("retry", str(UUID(int=1)), "--tool", "a"),
        ("purge", "one"),
    ],
)
def test_what_cannot_be_meant_is_exit_code_2(arguments: tuple[str, ...], db_url: str) -> None:
    ran = run(db_url, "tasks", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err


def test_a_status_that_is_none_is_told_with_those_that_are(db_url: str) -> None:
    err = " ".join(run(db_url, "tasks", "list", "--status", "banana").err.split())
    assert "Value error" not in err
    assert "'--status': it is one of working, input_required" in err


def test_without_a_database_it_says_what_is_missing(tmp_path: Path, empty_url: str) -> None:
    assert (
        run(empty_url, "tasks", "list").err
        == "perdure: The database has no tables of Perdure yet: run `perdure migrate`\n"
    )
    code, out, err = run_perdure(tmp_path / "run", "tasks", "list")
    assert (code, out) == (2, "")
    assert err.startswith("perdure: DATABASE_URL is not set")


# -- show -------------------------------------------------------------------------------------------------------------


def test_a_task_is_shown_with_all_that_there_is_of_it(db_url: str, made: dict[str, UUID]) -> None:
    ran = run(db_url, "tasks", "show", made["parked"])
    assert ran.code == 0
    for text in ("input_required (waiting for answers)", '"message": "colour?"', "not answered", "attempt 1 started"):
        assert text in ran.out
    document = json.loads(run(db_url, "tasks", "show", made["failed"], "--json").out)
    assert document["row"]["status"] == "failed"
    assert document["outcome"] == {"kind": "error", "value": {"code": -32603, "message": "It broke"}, "attempt": 1}
    assert document["request"]["params"]["arguments"] == {}
    assert [event["what"] for event in document["timeline"]] == ["created", "attempt 1 started", "failed"]


def test_attempts_are_counted_by_how_they_ended(db_url: str) -> None:
    out = run(db_url, "tasks", "show", make_nasty(db_url)).out
    assert re.search(r"^  attempts    1 \(1 error\)$", out, re.MULTILINE)


def test_an_unknown_task_is_exit_code_1(db_url: str) -> None:
    ran = run(db_url, "tasks", "show", uuid4())
    assert (ran.code, ran.out) == (1, "")
    assert "no such task" in ran.err


def test_a_long_payload_is_cut_unless_all_of_it_is_asked_for(db_url: str, made: dict[str, UUID]) -> None:
    long = "x" * 20_000
    execute(
        db_url,
        f"""UPDATE perdure.task_outcomes SET error = '{{"code":1,"message":"{long}"}}' WHERE error IS NOT NULL""",
    )
    assert "--full shows all" in run(db_url, "tasks", "show", made["failed"]).out
    assert long in run(db_url, "tasks", "show", made["failed"], "--full").out
    assert json.loads(run(db_url, "tasks", "show", made["failed"], "--json").out)["outcome"]["value"]["message"] == long


def test_what_clients_wrote_cannot_steer_a_terminal_nor_add_lines(db_url: str) -> None:
    task_id = make_nasty(db_url)
    listed = run(db_url, "tasks", "list")
    assert len(listed.lines) == 1
    assert len(listed.lines[0]) == COLUMNS
    shown = run(db_url, "tasks", "show", task_id)
    assert not [line for line in shown.out.splitlines() if line.startswith("line")]
    for text in (listed.out, shown.out):
        assert "\\x1b[31mred" in text
        assert not {"\x1b", "\x07", "\u202e", "\u2028"} & set(text)
    (document,) = run(db_url, "tasks", "list", "--json").documents
    assert document["owner"] == NASTY


# -- cancel, retry, purge ---------------------------------------------------------------------------------------------


def test_ids_are_cancelled_at_once_and_each_is_told_what_became_of_it(db_url: str, made: dict[str, UUID]) -> None:
    unknown = uuid4()
    ran = run(db_url, "tasks", "cancel", *(made[s] for s in ("queued", "running", "parked", "completed")), unknown)
    assert ran.code == 0
    assert {line[0]: line[1] for line in ran.lines} == {
        str(made["queued"]): "cancelled",
        str(made["running"]): "stopping",
        str(made["parked"]): "cancelled",
        str(made["completed"]): "left as it is: completed",
        str(unknown): "unknown",
    }
    after = statuses(db_url)
    assert [after[made[s]] for s in ("queued", "running", "parked")] == ["cancelled", "working", "cancelled"]
    assert run(db_url, "tasks", "cancel", made["completed"]).code == 1


def test_options_only_show_what_would_be_done_until_it_is_agreed_to(db_url: str, made: dict[str, UUID]) -> None:
    wanted, before = set(make_many(db_url, 12)), statuses(db_url)
    dry = run(db_url, "tasks", "cancel", "--tool", "bulk")
    assert (dry.code, len(dry.lines)) == (0, 5)
    assert "12 tasks" in dry.err
    assert "--yes" in dry.err
    (would,) = run(db_url, "tasks", "cancel", "--tool", "bulk", "--json").documents
    assert (would["would"], would["tasks"], len(would["sample"])) == ("cancel", 12, 5)
    assert statuses(db_url) == before
    done = run(db_url, "tasks", "cancel", "--tool", "bulk", "--yes", "--json")
    assert {(UUID(line["task_id"]), line["result"]) for line in done.documents} == {(i, "cancelled") for i in wanted}
    assert "12 cancelled" in done.err
    assert statuses(db_url) == before | dict.fromkeys(wanted, "cancelled")
    assert run(db_url, "tasks", "cancel", "--tool", "bulk", "--yes").code == 1


def test_a_retry_by_options_takes_what_failed_unless_it_is_told_otherwise(db_url: str, made: dict[str, UUID]) -> None:
    (line,) = run(db_url, "tasks", "retry", "--owner", OWNER, "--yes", "--json").documents
    assert line["task_id"] == str(made["failed"])
    assert statuses(db_url)[UUID(line["new_task_id"])] == "working"
    again = run(db_url, "tasks", "retry", "--owner", OWNER, "--status", "cancelled", "--yes")
    assert [(line[0], line[1]) for line in again.lines] == [(str(made["cancelled"]), "retried")]
    assert run(db_url, "tasks", "retry", made["running"]).lines == [[str(made["running"]), "left as it is: working"]]


def test_a_purge_takes_only_what_has_ended(db_url: str, made: dict[str, UUID]) -> None:
    ran = run(db_url, "tasks", "purge", "--owner", OWNER, "--yes")
    assert ids(ran.lines) == {made[state] for state in ("completed", "failed", "cancelled")}
    assert statuses(db_url).keys() == {made[s] for s in ("queued", "running", "stopping", "parked")}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("retry", "--tool", "bulk"), "those that failed unless --status says otherwise"),
        (("purge", "--status", "working"), "purge takes only tasks that have ended"),
    ],
)
def test_where_nothing_can_be_done_it_says_what_can(db_url: str, arguments: tuple[str, ...], says: str) -> None:
    make_many(db_url, 1)
    for yes in ((), ("--yes",)):
        ran = run(db_url, "tasks", *arguments, *yes)
        assert (ran.code, ran.out, says in ran.err) == (1, "", True)


@pytest.fixture
def reader_url(db_url: str) -> Iterator[str]:
    """The database, for a role that may only read."""
    role = f"reader_{uuid4().hex[:8]}"
    execute(
        db_url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'reader'",
        f"GRANT USAGE ON SCHEMA perdure TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA perdure TO {role}",
    )
    yield make_url(db_url).set(username=role, password="reader").render_as_string(hide_password=False)
    execute(db_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_role_that_may_only_read_sees_all_and_is_told_what_it_may_not(
    reader_url: str, db_url: str, made: dict[str, UUID]
) -> None:
    assert run(reader_url, "tasks", "list").code == run(reader_url, "tasks", "show", made["queued"]).code == 0
    for action in ("cancel", "purge"):
        ran = run(reader_url, "tasks", action, made["queued"])
        assert (ran.code, ran.out) == (2, "")
        assert "may not do this" in ran.err
    assert statuses(db_url)[made["queued"]] == "working"


def test_other_processes_hear_of_what_was_done(db_url: str, made: dict[str, UUID]) -> None:
    with psycopg.connect(db_url, autocommit=True) as listening:
        listening.execute("LISTEN perdure_changed")
        run(db_url, "tasks", "cancel", made["queued"])
        heard = [notice.payload for notice in listening.notifies(timeout=30, stop_after=1)]
        run(db_url, "tasks", "cancel", made["parked"], PERDURE_NOTIFY="false")
        assert list(listening.notifies(timeout=0)) == []
    assert heard == [str(made["queued"])]


# -- where the output cannot be written ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_reader_that_leaves_does_not_keep_a_change_from_being_done_to_all(db_url: str, form: tuple[str, ...]) -> None:
    made = make_many(db_url, 2 * BATCH + 1)
    ran = into("| head -1", "tasks", "cancel", "--tool", "bulk", "--yes", *form, DATABASE_URL=db_url)
    assert (ran.returncode, len(ran.stdout.splitlines()), ran.stderr) == (0, 1, f"{len(made)} cancelled\n")
    assert set(statuses(db_url).values()) == {"cancelled"}


def test_a_full_disk_is_told_in_one_line_and_a_change_is_done_to_all(db_url: str) -> None:
    made = make_many(db_url, 2 * BATCH + 1)
    full = "perdure: The output cannot be written: No space left on device\n"
    for more in ((), ("--limit", "1000"), ("--json",)):
        listed = into("> /dev/full", "tasks", "list", "--tool", "bulk", "--limit", "1", *more, DATABASE_URL=db_url)
        assert listed.returncode == 2
        assert [line for line in listed.stderr.splitlines(keepends=True) if "There are more" not in line] == [full]
    ran = into("> /dev/full", "tasks", "cancel", "--tool", "bulk", "--yes", DATABASE_URL=db_url)
    assert (ran.returncode, ran.stderr) == (2, f"{full}{len(made)} cancelled\n")
    assert set(statuses(db_url).values()) == {"cancelled"}


def test_what_was_done_is_told_where_it_breaks_off(db_url: str) -> None:
    make_many(db_url, BATCH + 1)
    execute(
        db_url,
        """CREATE FUNCTION perdure.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF (SELECT count(*) FROM changed) < 200 THEN RAISE 'broken'; END IF; RETURN NULL; END $$""",
        """CREATE TRIGGER refuse AFTER UPDATE ON perdure.tasks REFERENCING NEW TABLE AS changed
            FOR EACH STATEMENT EXECUTE FUNCTION perdure.refuse()""",
    )
    ran = into("", "tasks", "cancel", "--tool", "bulk", "--yes", DATABASE_URL=db_url)
    assert ran.returncode != 0
    assert f"Broken off: {BATCH} cancelled, of {BATCH + 1}." in ran.stderr


# -- at a terminal ----------------------------------------------------------------------------------------------------


def test_at_a_terminal_there_are_headers_and_it_asks_before_it_does_much(db_url: str, made: dict[str, UUID]) -> None:
    make_many(db_url, 3)
    with at_terminal("tasks", "list", "--status", "failed", DATABASE_URL=db_url, COLUMNS="60") as terminal:
        terminal.expect("TASK")
        terminal.expect("MESSAGE")
        terminal.expect(str(made["failed"]))
        terminal.expect("It broke")
        assert terminal.ends() == 0
    for answer, left in (("n", "working"), ("y", "cancelled")):
        with at_terminal("tasks", "cancel", "--tool", "bulk", DATABASE_URL=db_url) as terminal:
            terminal.answers(("Cancel 3? [y/N]", answer))
            assert terminal.ends() == 0
        assert [status for i, status in statuses(db_url).items() if i not in made.values()] == [left] * 3


def test_ctrl_c_at_the_question_ends_it_at_once_and_nothing_is_done(db_url: str) -> None:
    make_many(db_url, 3)
    with at_terminal("tasks", "cancel", "--tool", "bulk", DATABASE_URL=db_url) as terminal:
        terminal.expect("Cancel 3? [y/N]: ")
        terminal.rests()
        terminal.interrupt()
        terminal.expect("Nothing was done.")
        assert terminal.ends() == 130
    assert set(statuses(db_url).values()) == {"working"}
