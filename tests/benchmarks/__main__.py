"""`python -m tests.benchmarks [PATH…]`: how close Perdure is to what its libraries could do at best.

Every run of ours stands beside a run of a floor: the smallest service on the same libraries (`floor.py`), on the same
PostgreSQL, in turns. Figures of one machine mean little, the ratios are what counts. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.benchmarks import drain, http_paths, lasting, push
from tests.benchmarks.http_paths import Contender, Services, creating, greeting, interleaved, living, reading, table
from tests.benchmarks.stage import LOAD, SERVICE, TUNING, Stage, stage

Lines = list[str]


def create(services: Services, options: argparse.Namespace) -> Lines:
    """tools/call until the handle, which is committed."""
    contenders = [
        services.bare("static", b"completed"),
        services.bare("insert", b"taskId"),
        Contender("floor service", services.floor, creating),
        Contender("floor service, batched", services.batched, creating),
        Contender("floor service, batched, no worker", services.batched_alone, creating),
        Contender("perdure", services.perdure, creating),
        Contender("perdure, no worker", services.alone, creating),
    ]
    rows = _runs(services, contenders, options)
    return table(f"(a) create, {options.connections} connections", rows, "floor service, batched")


def notify(services: Services, options: argparse.Namespace) -> Lines:
    """Creating with and without notifications."""
    contenders = [
        Contender("perdure, no notifications", services.unheard, creating),
        Contender("perdure", services.alone, creating),
    ]
    return table(
        "(a) create, notifications off and on, no worker", _runs(services, contenders, options), contenders[0].name
    )


def get(services: Services, options: argparse.Namespace) -> Lines:
    """tasks/get of one task."""
    working, finished = partial(reading, finished=False), partial(reading, finished=True)
    contenders = [
        services.bare("static", b"completed"),
        services.bare("select", b"completed"),
        Contender("floor service, finished", services.floor, finished),
        Contender("perdure, finished", services.perdure, finished),
        Contender("perdure, working", services.alone, working),
    ]
    rows = _runs(services, contenders, options)
    return table(f"(b) get, {options.connections} connections", rows, "floor service, finished")


def life(services: Services, options: argparse.Namespace) -> Lines:
    """From the call until a poller sees the end."""
    contenders = [
        Contender("floor service", services.floor, living),
        Contender("floor service, batched", services.batched, living),
        Contender("perdure", services.perdure, living),
    ]
    rows = _runs(services, contenders, options)
    return table(f"(d) end to end, {options.connections} in flight, polled every 20 ms", rows, "floor service")


def never(services: Services, options: argparse.Namespace) -> Lines:
    """A tool that runs in the API."""
    contenders = [
        services.bare("static", b"completed"),
        Contender("floor service", services.floor, greeting),
        Contender("perdure", services.perdure, greeting),
    ]
    rows = _runs(services, contenders, options)
    return table(f"(e) a tool that no task is made for, {options.connections} connections", rows, "floor service")


HTTP: dict[str, Callable[[Services, argparse.Namespace], Lines]] = {
    "create": create,
    "notify": notify,
    "get": get,
    "life": life,
    "never": never,
}
PATHS = (*HTTP, "drain", "push")
MANY_SLOTS = 400
"""A drain is measured with these as well: for tools that do nothing but wait."""

LASTING = ("growth", "idle", "memory")
"""They take long, and so they have to be asked for."""


def _runs(services: Services, contenders: list[Contender], options: argparse.Namespace) -> list[http_paths.Row]:
    how = {"connections": options.connections, "seconds": options.seconds, "passes": options.passes}
    return interleaved(services.stage, contenders, **how)


def measure(on: Stage, options: argparse.Namespace) -> None:
    """Run what is asked for, and print each table when it is complete."""
    print(
        f"services on processor {SERVICE}, load on processor {LOAD}, PostgreSQL on all {os.cpu_count()}; "
        f"{', '.join(f'{name} {value}' for name, value in TUNING.items())}, fsync and synchronous_commit on; "
        f"medians of {options.passes} runs in turns of {options.seconds:g} s; cpu and pg: what an operation cost the "
        "service's processes and PostgreSQL's",
        flush=True,
    )
    asked = [path for path in (*PATHS, *LASTING) if path in (options.paths or PATHS)]
    services = http_paths.start(on, slots=options.slots) if set(asked) & set(HTTP) else None
    for path in asked:
        if services is not None and path in HTTP:
            print("\n".join(HTTP[path](services, options)), flush=True)
    if "drain" in asked:
        slots = dict.fromkeys((options.slots, MANY_SLOTS))
        lines = drain.measure(on, count=options.waiting, passes=options.passes, slots=slots)
        print("\n".join(lines), flush=True)
    if "push" in asked:
        print("\n(d) commit to a subscriber's bytes", *push.run(on, options.streams), sep="\n", flush=True)
    how = {"connections": options.connections, "seconds": options.seconds, "passes": options.passes}
    if "growth" in asked:
        print("\n".join(lasting.growth(on, finished=options.finished, **how)), flush=True)
    if "idle" in asked:
        print("\n".join(lasting.idle(on, minutes=options.minutes, **how)), flush=True)
    if "memory" in asked:
        lines = lasting.memory(on, minutes=options.minutes, connections=options.connections)
        print("\n".join(lines), flush=True)


def main() -> int:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "paths",
        nargs="*",
        choices=[*PATHS, *LASTING, []],
        help=f"which paths: {', '.join(PATHS)} (default: these), or what lasts: {', '.join(LASTING)}",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a run is (default: 5)")
    parser.add_argument("--passes", type=int, default=5, help="how many runs each figure is the median of (default: 5)")
    parser.add_argument("--connections", type=int, default=32, help="how many wait for a reply at once (default: 32)")
    parser.add_argument("--slots", type=int, default=32, help="PERDURE_SLOTS of the worker (default: 32)")
    parser.add_argument("--waiting", type=int, default=10_000, help="tasks that wait before a drain (default: 10,000)")
    parser.add_argument("--streams", type=int, default=1000, help="subscriptions that are open (default: 1000)")
    parser.add_argument("--finished", type=int, default=10_000_000, help="tasks that have ended (default: 10,000,000)")
    parser.add_argument("--minutes", type=float, default=10, help="how long memory and idle take (default: 10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as on:
        measure(on, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
