"""`python -m tests.faults --minutes N [--seed S]`: prints its figures; exits 1 with what it found if anything fails."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.faults.report import report
from tests.faults.run import Outcome, Plan, run


def read(arguments: Sequence[str]) -> Plan:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long faults are injected (default: 1)")
    parser.add_argument("--seed", type=int, help="decides what happens, as far as processes let it (default: random)")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between faults, on average (default: 2)")
    parser.add_argument("--users", type=int, default=24, help="clients that act at the same time (default: 24)")
    parser.add_argument("--lease", type=float, default=3.0, help="the workers' lease, in seconds (default: 3)")
    parser.add_argument("--folder", type=Path, help="a new folder for journal and logs (default: kept on findings)")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    return Plan(
        options.minutes * 60,
        seed,
        every_seconds=options.every,
        users=options.users,
        lease_seconds=options.lease,
        folder=options.folder,
    )


def main() -> int:
    """Read the command line, run, and print."""
    plan = read(sys.argv[1:])
    print(f"seed {plan.seed}: faults for {plan.seconds / 60:g} minutes", flush=True)
    try:
        outcome = asyncio.run(_until_told(plan))
    except asyncio.CancelledError:
        return 130
    print(report(outcome))
    return 1 if outcome.findings else 0


async def _until_told(plan: Plan) -> Outcome:
    """Run; SIGTERM ends it as Ctrl-C does, with everything that it has started."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run(plan)


if __name__ == "__main__":
    sys.exit(main())
