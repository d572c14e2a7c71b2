"""Where everything is wired: what a process is made of, and in which order it starts and stops.

    all      the port for operators answers first, and stops last
    serve    schema check, database, notifier, listener ── API ── until a signal ── API ends its requests ── database
    worker   schema check, database, notifier, listener ── runner ── until a signal ── runner drains ── database
    dev      PostgreSQL, migration, then both; the API answers until the runner has drained

The first SIGTERM or SIGINT stops gracefully, the second leaves at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self, TypeVar

import structlog

from app.embedded_pg import EmbeddedPostgres, first_reachable
from app.errors import DeclarationError, SettingsError
from app.http.auth.access import Access
from app.http.auth.api_keys import ApiKeys
from app.http.auth.key_set import KeySet
from app.http.auth.metadata import ResourceMetadata
from app.http.auth.tokens import AccessTokens
from app.http.endpoint import Endpoint
from app.http.guards import Guard
from app.http.ops import Ops
from app.http.readiness import Readiness, accepting, claiming, shared_checks
from app.http.server import PATH, Server
from app.http.ui.rendering import ROOT
from app.http.ui.site import Site
from app.methods.companions import companion_tools
from app.methods.dispatch import Methods
from app.methods.inline import Inline
from app.methods.limits import Limits
from app.methods.local import LocalTools
from app.methods.request_state import RequestStates
from app.methods.subscriptions import Subscriptions
from app.methods.tasks import Tasks
from app.methods.tools import Tools
from app.settings import Settings
from app.storage import migrate
from app.storage.database import Database
from app.storage.health import Health
from app.storage.listener import Listener
from app.storage.notifier import Notifier
from app.storage.operator import Operator
from app.storage.store import Store
from app.storage.watches import Watches
from app.tools.catalogue import Catalogue
from app.tools.registry import Registry
from app.worker.maintenance.loop import repeat
from app.worker.runner import Runner

log = structlog.get_logger(__name__)

T = TypeVar("T")

CONTROL_CONNECTIONS = 2
"""For claims, maintenance and notifications, beside the pool that requests and handlers share."""

RESTART_SECONDS = 1.0
"""After so long a background loop that has died is started again; twice as long after each further death in a row."""

DATA_FOLDERS = (Path(".perdure"), Path("/var/lib/perdure"))


@dataclass(frozen=True, slots=True)
class Started:
    """What `dev` has started.

    Attributes:
        url: the endpoint.
        tools: the names of the tools.
        database_url: password included.
        data_dir: where the embedded PostgreSQL keeps its data; None where DATABASE_URL says which one to use.
    """

    url: str
    tools: tuple[str, ...]
    database_url: str
    data_dir: Path | None


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run one of those below, or anything else, on uvloop where that is installed."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


async def serve(settings: Settings, modules: Sequence[str]) -> None:
    """Answer requests until a signal comes.

    Args:
        modules: where the tools are that run in this process, without a task; the others are the workers'.

    Raises:
        SettingsError, SchemaError, DeclarationError, StoreUnavailable: it cannot start; the message says why.
    """
    with Signals() as signals:
        registry, url = load_tools(settings, modules), settings.require_database_url()
        keys = settings.request_state_keys()
        if not keys:
            raise SettingsError(
                "PERDURE_REQUEST_STATE_KEY is not set: it takes a secret of at least 32 characters, the same for every "
                "API process. `openssl rand -hex 32` makes one"
            )
        stopped, site = asyncio.Event(), _site(settings)
        async with _operations(settings, site) as ready:
            await migrate.require_head(settings.direct(url) or url)
            async with (
                _storage(settings, url, "perdure serve") as process,
                _listener(settings, url) as listener,
                _health(settings, url, "perdure serve", ready) as health,
                _api(settings, process, registry, listener, keys, site) as address,
            ):
                signals.on_stop(stopped.set)
                ready.started(shared_checks(health, listener) | {"api": accepting(stopped)})
                log.info("serving", url=address)
                await stopped.wait()
                log.info("stopping")


async def worker(settings: Settings, modules: Sequence[str]) -> None:
    """Run tasks until a signal comes.

    Args:
        modules: where the tools are.

    Raises:
        SettingsError, SchemaError, DeclarationError, StoreUnavailable: it cannot start; the message says why.
    """
    with Signals() as signals:
        registry, url = load_tools(settings, modules), settings.require_database_url()
        _require_durable(registry)
        async with _operations(settings) as ready:
            await migrate.require_head(settings.direct(url) or url)
            async with (
                _storage(settings, url, "perdure worker") as process,
                _listener(settings, url) as listener,
                _health(settings, url, "perdure worker", ready) as health,
            ):
                runner = _runner(settings, process, registry, listener)
                signals.on_stop(runner.stop)
                ready.started(shared_checks(health, listener) | {"worker": claiming(lambda: runner.obstacle)})
                all_ended = await runner.run()
        if not all_ended:
            _leave(0)


async def dev(settings: Settings, modules: Sequence[str], ready: Callable[[Started], None]) -> None:
    """Be API and worker in one process, on a PostgreSQL of our own unless DATABASE_URL says otherwise.

    Args:
        modules: where the tools are.
        ready: called once when requests are answered.

    Raises:
        SettingsError, SchemaError, DeclarationError, StoreUnavailable: it cannot start; the message says why.
        EmbeddedPostgresError: PostgreSQL cannot be started.
    """
    with Signals() as signals:
        registry = load_tools(settings, modules)
        with _postgres(settings) as (url, data_dir):
            keys = settings.request_state_keys() or [secrets.token_bytes(32)]
            site = _site(settings)
            async with _operations(settings, site) as readiness:
                await migrate.upgrade(settings.direct(url) or url)
                async with (
                    _storage(settings, url, "perdure dev") as process,
                    _listener(settings, url) as listener,
                    _health(settings, url, "perdure dev", readiness) as health,
                    _api(settings, process, registry, listener, keys, site) as address,
                ):
                    runner = _runner(settings, process, registry, listener)
                    signals.on_stop(runner.stop)
                    readiness.started(shared_checks(health, listener) | {"worker": claiming(lambda: runner.obstacle)})
                    ready(Started(address, registry.names, url, data_dir))
                    all_ended = await runner.run()
        if not all_ended:
            _leave(0)


def load_tools(settings: Settings, modules: Sequence[str]) -> Registry:
    """Load tools; those that do not say how long their tasks are kept get the setting.

    Raises:
        DeclarationError: a module or a tool cannot be loaded.
    """
    loaded = []
    for tool in Registry.load(modules):
        if "retention_ms" not in tool.options.model_fields_set:
            options = tool.options.model_copy(update={"retention_ms": settings.retention})
            tool = dataclasses.replace(tool, options=options)
        loaded.append(tool)
    return Registry(loaded)


class Signals:
    """What SIGTERM and SIGINT do while this is entered.

    They are handled by Python itself, not by the event loop: a handler of a tool that blocks the loop must not keep
    the second signal from leaving.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        main = asyncio.current_task()
        # What is only starting has nothing to finish: it is cancelled.
        self._stop: Callable[[], object] = main.cancel if main else lambda: None
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def on_stop(self, stop: Callable[[], object]) -> None:
        """From now on, call this for the first signal."""
        self._stop = stop

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _received(self, number: int, _: FrameType | None) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        self._loop.call_soon_threadsafe(lambda: self._stop())


# -- operators --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _operations(settings: Settings, site: Site | None = None) -> AsyncIterator[Readiness]:
    """Answer operators from the first moment to the last; gives what says whether the process is ready."""
    readiness = Readiness()
    guard = Guard([_authority(settings.ops_host), *settings.allowed_hosts], addresses=True, pages=site is not None)
    ops = Ops(readiness, guard, pages=None if site is None else {ROOT: site.app})
    if settings.ops_port is not None:
        await _listen(ops, settings, settings.ops_port)
    try:
        yield readiness
    finally:
        await ops.stop()


def _site(settings: Settings) -> Site | None:
    """The operators' pages, where they are wanted."""
    return None if settings.ui_password is None else Site(settings.ui_password.get_secret_value())


async def _listen(ops: Ops, settings: Settings, port: int) -> None:
    """A port that was asked for must be free, since probes and scrapers go there; the default one need not be."""
    host = _authority(settings.ops_host)
    try:
        log.info("answering operators", url=f"http://{host}:{await ops.start(settings.ops_host, port)}")
    except OSError as refused:
        if refused.errno == errno.EADDRINUSE and "ops_port" not in settings.model_fields_set:
            log.warning("no health and no metrics: the default port is taken; PERDURE_OPS_PORT sets another", port=port)
            return
        raise SettingsError(
            f"The operations port cannot listen on {host}:{port} ({_reason(refused)}): "
            "choose another with PERDURE_OPS_HOST and PERDURE_OPS_PORT"
        ) from refused


@asynccontextmanager
async def _health(settings: Settings, url: str, name: str, ready: Readiness) -> AsyncIterator[Health]:
    health = Health(url, name=f"{name} health")
    try:
        yield health
    finally:
        ready.stopping()
        await health.close()


def _authority(host: str) -> str:
    """A host as it is written before a port."""
    return f"[{host}]" if ":" in host else host


def _reason(refused: OSError) -> str:
    return os.strerror(refused.errno) if refused.errno and refused.errno > 0 else str(refused)


# -- the parts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Process:
    database: Database
    store: Store
    control: Store
    notifier: Notifier | None = None


@asynccontextmanager
async def _storage(settings: Settings, url: str, name: str) -> AsyncIterator[_Process]:
    """The store for requests and handlers, and one whose connections they cannot use up."""
    async with (
        Database(url, name=name, connections=settings.database_connections, pooled=settings.pooled) as database,
        Database(url, name=f"{name} control", connections=CONTROL_CONNECTIONS, pooled=settings.pooled) as control,
    ):
        if not settings.notify:
            yield _Process(database, Store(database), Store(control))
            return
        notifier = Notifier(control)
        async with _background("notifier", notifier.run):
            yield _Process(database, Store(database, notifier), Store(control, notifier), notifier)


@asynccontextmanager
async def _listener(settings: Settings, url: str) -> AsyncIterator[Listener | None]:
    """What hears notifications; None where all is found out by polling."""
    direct = settings.direct(url)
    if not settings.notify or direct is None:
        log.info("notifications are not heard; changes are found by polling")
        yield None
        return
    listener = Listener(direct)
    async with _background("listener", listener.run):
        yield listener


@asynccontextmanager
async def _api(
    settings: Settings,
    process: _Process,
    registry: Registry,
    listener: Listener | None,
    keys: Sequence[bytes],
    site: Site | None = None,
) -> AsyncIterator[str]:
    """Serve requests, and the operators' pages; gives the endpoint's URL."""
    watches = Watches(listener, poll_seconds=settings.poll_seconds)
    operator = Operator(process.database, process.notifier)
    async with (
        _access(settings) as (access, metadata),
        _listening(settings, process.store, registry, watches, keys, access, metadata) as address,
    ):
        with nullcontext() if site is None else site.desk.staffed(operator, watches):
            yield address


@asynccontextmanager
async def _access(settings: Settings) -> AsyncIterator[tuple[Access, ResourceMetadata | None]]:
    """Who is let in, and what tells them where to get a token."""
    settings.check_exposure()
    scopes = settings.scopes()
    match settings.auth:
        case "none":
            yield Access(), None
        case "keys":
            text = settings.api_keys.get_secret_value() if settings.api_keys else ""
            yield Access(ApiKeys(text, settings.api_keys_file, scopes), scopes=settings.call_scopes), None
        case "oauth":
            if settings.oauth_issuer is None or settings.public_url is None:
                raise SettingsError("PERDURE_AUTH=oauth needs PERDURE_OAUTH_ISSUER and PERDURE_PUBLIC_URL")
            keys = KeySet(settings.oauth_issuer, settings.oauth_jwks_url)
            tokens = AccessTokens(
                keys,
                issuer=settings.oauth_issuer,
                audiences=settings.oauth_audience or (settings.public_url,),
                algorithms=settings.oauth_algorithms,
                scopes=scopes,
            )
            metadata = ResourceMetadata(settings.public_url, settings.oauth_issuer, settings.call_scopes)
            try:
                yield Access(tokens, metadata_url=metadata.url, scopes=settings.call_scopes), metadata
            finally:
                await keys.close()


@asynccontextmanager
async def _listening(
    settings: Settings,
    store: Store,
    registry: Registry,
    watches: Watches,
    keys: Sequence[bytes],
    access: Access,
    metadata: ResourceMetadata | None,
) -> AsyncIterator[str]:
    if settings.companion_tools:
        registry = Registry([*registry, *companion_tools(store, watches)])
    catalogue, local = Catalogue(store, registry), LocalTools()
    inline = Inline(store, watches, RequestStates(keys), companions=settings.companion_tools)
    limits = Limits(
        store,
        live_tasks=settings.max_live_tasks,
        inline_calls=settings.max_inline_calls,
        streams=settings.max_streams,
        stream_tasks=settings.max_stream_tasks,
        calls_per_minute=settings.max_calls_per_minute,
    )
    subscriptions = Subscriptions(store, watches, catalogue, limits, seconds=settings.stream_seconds)
    tools = Tools(store, catalogue, local, inline, limits, scopes=settings.call_scopes, private=settings.auth != "none")
    methods = Methods(tools, Tasks(store), subscriptions)
    host = _authority(settings.host)
    server = Server(
        Endpoint(methods, access, lenient_task_names=settings.lenient_task_names),
        Guard(settings.known_hosts(), settings.allowed_origins),
        metadata,
        max_body=settings.max_body_bytes,
        max_connections=settings.max_connections,
        grace_seconds=settings.grace_seconds,
    )
    try:
        port = await server.start(settings.host, settings.port)
    except OSError as refused:
        raise SettingsError(
            f"The API cannot listen on {host}:{settings.port} ({_reason(refused)}): "
            "choose another with --host and --port, or PERDURE_HOST and PERDURE_PORT"
        ) from refused
    try:
        yield f"http://{host}:{port}{PATH}"
    finally:
        await server.stop()
        await catalogue.close()
        local.close()


def _runner(settings: Settings, process: _Process, registry: Registry, listener: Listener | None) -> Runner:
    return Runner(
        process.store,
        process.database,
        registry,
        control=process.control,
        listener=listener,
        slots=settings.slots,
        lease_seconds=settings.lease_seconds,
        grace_seconds=settings.grace_seconds,
        poll_seconds=settings.poll_seconds,
        max_result_bytes=settings.max_result_bytes,
    )


@contextmanager
def _postgres(settings: Settings) -> Iterator[tuple[str, Path | None]]:
    """The database of `dev`, and the folder that it is in if it is our own."""
    if settings.database_url is not None:
        yield settings.require_database_url(), None
        return
    folder = (settings.data_dir or first_reachable(*DATA_FOLDERS)).absolute()
    # Started here, on the main thread: the server is told to stop when this thread ends, however it ends.
    with EmbeddedPostgres(folder, die_with_parent=True) as server:
        yield server.url(), folder


@asynccontextmanager
async def _background(name: str, loop: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run a loop beside all else; if it dies, it is logged and started again, after a pause that grows."""
    task = asyncio.create_task(repeat(name, RESTART_SECONDS, loop))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _require_durable(registry: Registry) -> None:
    if not registry.durable():
        raise DeclarationError('None of these tools runs as a task: a worker has nothing to do for task="never"')


def _leave(code: int) -> NoReturn:
    """End the process though handlers still run: leaving in the ordinary way would wait for their threads."""
    log.warning("leaving handlers behind that did not end")
    os._exit(code)
