"""Known vulnerabilities of what is installed with us: `python -m tests.audit`. Exits 1 if there is one.

The advisories come from the package index. One that has none, such as a mirror of files alone, leaves everything
unaudited: that is said in the last line, and is no failure, because nothing of ours could mend it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def main() -> int:
    """Ask, and print what was found."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(CONSTRAINTS), "--no-deps", "--disable-pip", "-f", "json"]
    done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        print(done.stderr)
        return 1
    print("\n".join(findings(report)))
    return int(any(found.get("vulns") for found in report["dependencies"]))


def findings(report: dict[str, Any]) -> list[str]:
    """A line for each vulnerability, and one that says how much was looked at."""
    packages = report["dependencies"]
    known = [
        f"{package['name']} {package['version']}: {flaw['id']}, mended in {' or '.join(flaw['fix_versions']) or 'none'}"
        for package in packages
        for flaw in package.get("vulns", ())
    ]
    audited = sum("skip_reason" not in package for package in packages)
    return [*known, f"{audited} of {len(packages)} packages were audited, {len(known)} vulnerabilities are known"]


if __name__ == "__main__":
    sys.exit(main())
