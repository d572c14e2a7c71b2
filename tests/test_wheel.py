"""The wheel that is installed elsewhere has all that it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).parents[1]
BUILT_FROM = ("app", "migrations", "alembic.ini", "pyproject.toml", "README.md", "LICENSE")


@pytest.mark.timeout(300)
def test_migrate_works_from_an_installed_wheel(tmp_path: Path, empty_url: str) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name in BUILT_FROM:  # a copy: building leaves nothing in the checkout
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([*pip, str(source)], check=True, cwd=tmp_path, stdout=subprocess.DEVNULL)
    shutil.rmtree(source)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "DATABASE_URL": empty_url}
    for _ in range(2):  # the second time there is nothing to do
        command = [sys.executable, str(site / "bin" / "perdure"), "migrate"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    where = [sys.executable, "-c", "import app; print(app.__file__)"]
    there = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert str(site) in there
    pages = [sys.executable, "-c", "from app.http.ui import rendering as r; r._environment.get_template('task.html')"]
    subprocess.run(pages, cwd=tmp_path, env=environment, check=True)
    for name in ("pages.css", "pages.js", "icon.svg"):
        assert (site / "app" / "http" / "ui" / "static" / name).is_file()
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("SELECT count(*) FROM perdure.task_overview").fetchone() == (0,)
