"""All checks, for people and for CI: `python -m tests.check [options of pytest]`. Exits 1 if any of them fails."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable
CHECKS: dict[str, Sequence[str | Path]] = {
    "ruff check": [PYTHON, "-m", "ruff", "check"],
    "ruff format": [PYTHON, "-m", "ruff", "format", "--check"],
    "mypy": [PYTHON, "-m", "mypy"],
    "import-linter": [Path(sysconfig.get_path("scripts"), "lint-imports"), "--no-cache"],
    "pip-audit": [PYTHON, "-m", "tests.audit"],
    "pytest": [PYTHON, "-m", "pytest", "-n", "2"],
}


def main(pytest_options: Sequence[str]) -> int:
    """Run every check, whatever became of the ones before, and repeat pytest's closing line at the very end."""
    results = {name: run(name, command, pytest_options if name == "pytest" else ()) for name, command in CHECKS.items()}
    print("\n" + "\n".join(f"{'ok    ' if code == 0 else 'FAILED'} {name}" for name, (code, _) in results.items()))
    print(results["pytest"][1])
    return int(any(code for code, _ in results.values()))


def run(name: str, command: Sequence[str | Path], options: Sequence[str]) -> tuple[int, str]:
    """Run one check, its output passed on as it comes; its exit code and its last line."""
    print(f"\n--- {name}", flush=True)
    start, last = time.monotonic(), ""
    with subprocess.Popen([*command, *options], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            text = line.decode(errors="replace")
            print(text, end="", flush=True)
            last = text.strip() or last
    print(f"--- {name}: exit {process.returncode} after {time.monotonic() - start:.1f} s", flush=True)
    return process.returncode, last


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
