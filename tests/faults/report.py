"""The figures of a fault run, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from statistics import median

from tests.faults.attempts import rescue_pause
from tests.faults.run import Outcome

STATES = ("completed", "failed", "cancelled", "input_required", "working")
REFUSED = ("late write refused", "attempt is stale")
SHOWN_FINDINGS = 50


def report(outcome: Outcome) -> str:
    """All of it."""
    parts = [_tasks(outcome), _faults(outcome), _recovery(outcome), _attempts(outcome), _clients(outcome)]
    return "\n".join(chain.from_iterable([*parts, _findings(outcome)]))


def _tasks(outcome: Outcome) -> Iterator[str]:
    rows = outcome.evidence.tasks.values()
    counted = Counter((row["tool"], row["status"]) for row in rows)
    yield f"tasks        {len(rows)} created, {len(outcome.ledger.tasks)} acknowledged, in {outcome.seconds:.0f} s"
    yield f"             {'tool':10}" + "".join(f"{state:>15}" for state in STATES)
    for tool in sorted({row["tool"] for row in rows}):
        yield f"             {tool:10}" + "".join(f"{counted[tool, state]:15}" for state in STATES)
    ended = sum(row["finished_at"] is not None for row in rows)
    rates = ended / outcome.seconds, outcome.ledger.requests / outcome.seconds
    yield f"throughput   {rates[0]:.1f} tasks/s, {rates[1]:.1f} requests/s"


def _faults(outcome: Outcome) -> Iterator[str]:
    for kind, count in outcome.injector.counts.items():
        yield f"{'faults':13}{count:5} {kind}"
    for name, count in sorted(outcome.injector.backends.items()):
        yield f"{'':13}{count:5} backend of {name}"


def _recovery(outcome: Outcome) -> Iterator[str]:
    lease, found = outcome.plan.lease_seconds, outcome.recoveries
    pause = rescue_pause(lease)
    yield f"recovery     of tasks of killed workers; lease {lease:g} s, a round of the rescue every {pause:g} s"
    yield f"             rescued, with a rescuer up all the time: {_spread(r.rescued for r in found if r.undisturbed)}"
    yield f"             rescued, all of them:                    {_spread(r.rescued for r in found)}"
    yield f"             … since it was possible:                 {_spread(r.rescued - r.possible for r in found)}"
    yield f"             running again, all of them:              {_spread(r.resumed for r in found if r.resumed)}"
    rows = outcome.evidence.tasks.values()
    cancels = [
        r["finished_at"] - r["cancel_requested_at"] for r in rows if r["cancel_requested_at"] and r["finished_at"]
    ]
    yield f"             from a cancel to the end:                {_spread(cancels)}"


def _attempts(outcome: Outcome) -> Iterator[str]:
    rows = outcome.evidence.tasks.values()
    ends = Counter(attempt["ended"] for attempt in outcome.evidence.attempts.values())
    told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    yield f"attempts     {sum(row['epoch'] for row in rows)} in all; {told or 'none cut short'}"
    effects = Counter((n.task, n.step) for n in outcome.evidence.notes if n.event == "effect")
    again = sum(count - 1 for count in effects.values())
    yield f"             {len(effects)} plain steps, {again} times run again"
    yield f"             {len(outcome.evidence.written)} transactions, each once unless it is told below"
    refused = {event: sum(c for (_, e), c in outcome.evidence.events.items() if e == event) for event in REFUSED}
    yield f"             {', '.join(f'{count} × “{event}”' for event, count in refused.items())}"


def _clients(outcome: Outcome) -> Iterator[str]:
    yield f"clients      {outcome.ledger.requests} replies; {outcome.ledger.unanswered.total()} calls of tools lost"
    for kind, count in sorted(outcome.ledger.expected.items()):
        yield f"             {count:5} {kind} as an API was killed (expected)"
    by_event = Counter({key: count for key, count in outcome.evidence.events.items() if key[0] != "info"})
    yield "logged       " + (
        "; ".join(f"{count} × {event}" for (_, event), count in by_event.most_common()) or "nothing"
    )


def _findings(outcome: Outcome) -> Iterator[str]:
    if not outcome.findings:
        yield f"all held     seed {outcome.plan.seed}"
        return
    yield f"\n{len(outcome.findings)} FINDINGS (seed {outcome.plan.seed}; journal and logs in {outcome.folder})"
    for finding in outcome.findings[:SHOWN_FINDINGS]:
        yield f"  - {finding}"
    yield "faults, by time:"
    for fault in outcome.injector.faults:
        yield f"  {fault.at:.2f} {fault.kind}: {fault.what}"


def _spread(seconds: Iterable[float]) -> str:
    values = list(seconds)
    return f"median {median(values):.2f} s, worst {max(values):.2f} s, of {len(values)}" if values else "none"
