"""What is counted and measured, for Prometheus. Others call what is here; it knows nothing of them.

Names follow OpenTelemetry's conventions for MCP where those have one, and Prometheus's for the rest. What a caller can
make up never becomes a label: a method or a tool that does not exist counts as `_OTHER`, and there is no task, no owner
and no argument in any. A tool author's own metrics, made with prometheus_client, are shown beside these.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterable
from functools import lru_cache

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

disable_created_metrics()  # type: ignore[no-untyped-call]  # when a series began: another series for each

OTHER = "_OTHER"
"""Stands for all that is not known, as OpenTelemetry has it."""

KNOWN = 4096
"""So many label values are remembered; a fleet has fewer tools."""

LAG_SECONDS = 0.5

_OPERATION_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)  # the convention's
_QUEUE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_RUN_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

# -- requests ---------------------------------------------------------------------------------------------------------

OPERATIONS = Histogram(
    "mcp_server_operation_duration_seconds",
    "Time from a request to its result. error_type is the JSON-RPC code, or tool_error for a result with isError.",
    ("mcp_method_name", "gen_ai_tool_name", "error_type"),
    buckets=_OPERATION_BUCKETS,
)
REFUSED = Counter(
    "perdure_requests_refused", "Requests that were answered with an error, by the kind of refusal.", ("reason",)
)
CREATED = Counter("perdure_tasks_created", "Tasks that were committed for a call.", ("tool",))

# -- attempts ---------------------------------------------------------------------------------------------------------

QUEUE_TIME = Histogram(
    "perdure_queue_duration_seconds",
    "Time from when a task could be claimed until it was.",
    ("tool",),
    buckets=_QUEUE_BUCKETS,
)
RUN_TIME = Histogram(
    "perdure_attempt_duration_seconds",
    "Time from the claim until the handler had ended.",
    ("tool",),
    buckets=_RUN_BUCKETS,
)
ATTEMPTS = Counter("perdure_attempts", "Attempts that are over, by how they ended.", ("tool", "outcome"))
STALE = Counter("perdure_stale_writes", "Writes that were refused because the task was no longer the attempt's.")
RESCUED = Counter("perdure_tasks_rescued", "Tasks that were taken from lost workers.", ("tool",))
EXPIRED = Counter("perdure_tasks_expired", "Tasks that were ended at their deadline without a worker.", ("tool",))
PURGED = Counter("perdure_tasks_purged", "Expired tasks that were deleted.")
LOOP_FAILURES = Counter("perdure_loop_failures", "Rounds of background loops that failed.", ("loop",))

# -- the process ------------------------------------------------------------------------------------------------------

BUILD = Gauge("perdure_build_info", "1, with what runs as labels.", ("version", "role", "python"))
LAG = Histogram("perdure_event_loop_lag_seconds", "How late the event loop ran what was due.", buckets=_LAG_BUCKETS)
LOSSES = Counter("perdure_listener_losses", "Times that the hearing of notifications broke off.")

# -- what is looked at when somebody asks -----------------------------------------------------------------------------

LOOKED = {
    "perdure_listener_hearing": ("1 while notifications are heard, 0 while changes are found by polling.", ()),
    "perdure_open_streams": ("Subscriptions that are open in this process.", ()),
    "perdure_inline_calls": ("Calls that wait in this process for their task to end.", ()),
    "perdure_pool_limit_connections": ("The most connections that a pool opens.", ("pool",)),
    "perdure_pool_used_connections": ("Connections that are in use.", ("pool",)),
    "perdure_pool_waiting": ("Statements that wait for a connection.", ("pool",)),
    "perdure_worker_slots": ("How many tasks this worker runs at once.", ()),
    "perdure_worker_running": ("Handlers that run in this worker.", ()),
    "perdure_worker_claiming": ("1 while this worker claims tasks, 0 while something keeps it from it.", ()),
    # The database: the same in every process that can reach it.
    "perdure_database_up": ("1 if the database answered what this scrape asks of it in time.", ()),
    "perdure_tasks": ("Live tasks by what they do.", ("tool", "activity")),
    "perdure_oldest_wait_seconds": ("How long the longest queued task has waited.", ("tool",)),
    "perdure_tool_workers": ("Workers that are alive and claim tasks of the tool.", ("tool",)),
    "perdure_notification_queue_ratio": ("How full PostgreSQL's queue of notifications is, 0 to 1.", ()),
    "perdure_oldest_xmin_age_transactions": (
        "How many transactions VACUUM is held back by the oldest one that is open.",
        (),
    ),
}
"""Gauges, with their labels. A process shows those of what it has: an API nothing of a worker."""

Sample = tuple[str, float, tuple[str, ...]]
"""The name of one of these, its value, and the values of its labels."""

ACTIVITIES = ("queued", "scheduled", "running", "waiting_for_answers")


def operation(method: str, tool: str, error_type: str, seconds: float) -> None:
    """Count a request.

    Args:
        method: one that is served, or OTHER.
        tool: one that is listed, OTHER for any else, "" for a method that names none.
        error_type: a JSON-RPC code of the protocol's, `tool_error`, or OTHER; "" where nothing went wrong.
    """
    _operations(method, tool, error_type).observe(seconds)


def refused(reason: str) -> None:
    """Count a request that was answered with an error."""
    _refused(reason).inc()


def created(tool: str) -> None:
    """Count a new task."""
    _created(tool).inc()


def attempt_ended(tool: str, outcome: str, queue_seconds: float, run_seconds: float) -> None:
    """Count an attempt that is over."""
    queue_time, run_time = _times(tool)
    queue_time.observe(queue_seconds)
    run_time.observe(run_seconds)
    _attempts(tool, outcome).inc()


def moved(counter: Counter, tools: Iterable[str]) -> None:
    """Count tasks that maintenance moved, by their tools."""
    for tool in tools:
        counter.labels(tool).inc()


def expect_tools(tools: Iterable[str]) -> None:
    """Show as 0 what may go wrong with these: to Prometheus, what appears with its first count has not increased."""
    for tool in tools:
        RESCUED.labels(tool)
        _attempts(tool, "internal_error")


def expect_refusals(reasons: Iterable[str]) -> None:
    """Show these as 0, too."""
    for reason in reasons:
        _refused(reason)


def show_build(version: str, role: str) -> None:
    """Say what runs."""
    BUILD.labels(version, role, platform.python_version()).set(1)


def show(samples: Iterable[Sample]) -> None:
    """Show these gauges from now on, and no others: what is gone leaves nothing behind."""
    families: dict[str, GaugeMetricFamily] = {}
    for name, value, labels in samples:
        if name not in families:
            families[name] = _family(name)
        families[name].add_metric(labels, value)
    _looked.families = list(families.values())


class _Looked(Collector):
    """The gauges that are shown."""

    def __init__(self) -> None:
        self.families: list[GaugeMetricFamily] = []

    def collect(self) -> list[GaugeMetricFamily]:
        """What was found when it was last looked."""
        return self.families

    def describe(self) -> list[GaugeMetricFamily]:
        """All that there can be."""
        return [_family(name) for name in LOOKED]


def _family(name: str) -> GaugeMetricFamily:
    text, labels = LOOKED[name]
    return GaugeMetricFamily(name, text, labels=labels)


_looked = _Looked()
REGISTRY.register(_looked)


async def watch_loop(seconds: float = LAG_SECONDS) -> None:
    """Measure how late the event loop is, until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + seconds
        await asyncio.sleep(seconds)
        LAG.observe(max(0.0, clock() - due))


# To find the series of some labels takes a lock and makes a tuple of texts: once is enough.


@lru_cache(KNOWN)
def _operations(method: str, tool: str, error_type: str) -> Histogram:
    return OPERATIONS.labels(method, tool, error_type)


@lru_cache(KNOWN)
def _refused(reason: str) -> Counter:
    return REFUSED.labels(reason)


@lru_cache(KNOWN)
def _created(tool: str) -> Counter:
    return CREATED.labels(tool)


@lru_cache(KNOWN)
def _times(tool: str) -> tuple[Histogram, Histogram]:
    return QUEUE_TIME.labels(tool), RUN_TIME.labels(tool)


@lru_cache(KNOWN)
def _attempts(tool: str, outcome: str) -> Counter:
    return ATTEMPTS.labels(tool, outcome)
