"""What a process says of its settings when it starts."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import perdure


def test_a_process_tells_in_its_log_which_variables_it_ignores(tmp_path: Path, db_url: str) -> None:
    mistaken = {"PERDURE_SLOT": "3", "PERDURE_SERVICE_HOST": "10.0.0.1", "PERDURE_PORT": "tcp://10.0.0.1:80"}
    with perdure(tmp_path / "run", "serve", "--port", "0", DATABASE_URL=db_url, **mistaken) as command:
        command.says("serving")
        assert command.stop() == 0
    assert command.err.count("is no setting") == 1
    assert "PERDURE_SLOT is no setting, and ignored: is PERDURE_SLOTS meant?" in command.err
