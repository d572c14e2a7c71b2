"""Where everything is wired: what a process is made of, and in which order it starts and stops.

    all      the port for operators answers first, and stops last
    serve    schema check, database, notifier, listener ── API ── until a signal ── API ends its requests ── database
    worker   schema check, database, notifier, listener ── runner ── until a signal ── runner drains ── database
    dev      PostgreSQL, migration, then both; the API answers until the runner has drained

How a process runs at all, and what signals do to it, is in `app/process.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import structlog

from app.embedded_pg import EmbeddedPostgres, first_reachable
from app.errors import DeclarationError, ErrorKind, SettingsError
from app.http.auth.access import Access
from app.http.auth.api_keys import ApiKeys
from app.http.auth.key_set import KeySet
from app.http.auth.metadata import ResourceMetadata
from app.http.auth.tokens import AccessTokens
from app.http.endpoint import Endpoint
from app.http.guards import Guard
from app.http.operations import Operations, authority, reason
from app.http.readiness import accepting, claiming
from app.http.scrape import Scrape
from app.http.server import PATH, Server
from app.methods.companions import companion_tools
from app.methods.dispatch import Methods
from app.methods.inline import Inline
from app.methods.limits import Limits
from app.methods.local import LocalTools
from app.methods.request_state import RequestStates
from app.methods.subscriptions import Subscriptions
from app.methods.tasks import Tasks
from app.methods.tools import Tools
from app.process import Signals, background, leave, spare_the_collector
from app.settings import Settings
from app.storage import migrate
from app.storage.database import Database
from app.storage.listener import Listener
from app.storage.notifier import Notifier
from app.storage.operator import Operator
from app.storage.store import Store
from app.storage.watches import Watches
from app.telemetry import metrics
from app.tools.catalogue import Catalogue
from app.tools.registry import Registry
from app.worker.runner import Runner

log = structlog.get_logger(__name__)

CONTROL_CONNECTIONS = 2
"""For claims, maintenance and notifications, beside the pool that requests and handlers share."""

LAST_WORD_SECONDS = 1.0
"""How long a process that leaves may take to tell of its last changes."""

OPERATOR_CONNECTIONS = 4
OPERATOR_SECONDS = 120.0
"""A statement of an operator's command may take so long: a list of all that ever ended reads them."""

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


async def serve(settings: Settings, modules: Sequence[str]) -> None:
    """Answer requests until a signal comes.

    Args:
        modules: where the tools are that run in this process, without a task; the others are the workers'.

    Raises:
        SettingsError, SchemaError, DeclarationError, StoreUnavailable: it cannot start; the message says why.
    """
    settings.check_exposure()
    with Signals() as signals:
        registry, url = load_tools(settings, modules), settings.require_database_url()
        keys = settings.request_state_keys()
        if not keys:
            raise SettingsError(
                "PERDURE_REQUEST_STATE_KEY is not set: it takes a secret of at least 32 characters, the same for every "
                "API process. `openssl rand -hex 32` makes one"
            )
        stopped = asyncio.Event()
        async with _operations(settings, "serve") as ops:
            await migrate.require_head(settings.direct(url) or url)
            async with (
                _storage(settings, url, "perdure serve") as process,
                _listener(settings, url, for_worker=False) as listener,
                ops.showing(url, process.pools, listener) as checks,
                _api(settings, process, registry, listener, keys, ops) as address,
            ):
                signals.on_stop(stopped.set)
                spare_the_collector()
                ops.ready.started(checks | {"api": accepting(stopped)})
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
        async with _operations(settings, "worker") as ops:
            await migrate.require_head(settings.direct(url) or url)
            async with (
                _storage(settings, url, "perdure worker") as process,
                _listener(settings, url) as listener,
                ops.showing(url, process.pools, listener) as checks,
            ):
                ops.scrape.worker = runner = _runner(settings, process, registry, listener)
                signals.on_stop(runner.stop)
                spare_the_collector()
                ops.ready.started(checks | {"worker": claiming(lambda: runner.obstacle)})
                all_ended = await runner.run()
        if not all_ended:
            leave(0)


async def dev(settings: Settings, modules: Sequence[str], ready: Callable[[Started], None]) -> None:
    """Be API and worker in one process, on a PostgreSQL of our own unless DATABASE_URL says otherwise.

    Args:
        modules: where the tools are.
        ready: called once when requests are answered.

    Raises:
        SettingsError, SchemaError, DeclarationError, StoreUnavailable: it cannot start; the message says why.
        EmbeddedPostgresError: PostgreSQL cannot be started.
    """
    settings.check_exposure()
    with Signals() as signals:
        registry = load_tools(settings, modules)
        with _postgres(settings) as (url, data_dir):
            keys = settings.request_state_keys() or [secrets.token_bytes(32)]
            async with _operations(settings, "dev") as ops:
                await migrate.upgrade(settings.direct(url) or url)
                async with (
                    _storage(settings, url, "perdure dev") as process,
                    _listener(settings, url) as listener,
                    ops.showing(url, process.pools, listener) as checks,
                    _api(settings, process, registry, listener, keys, ops) as address,
                ):
                    ops.scrape.worker = runner = _runner(settings, process, registry, listener)
                    signals.on_stop(runner.stop)
                    ops.ready.started(checks | {"worker": claiming(lambda: runner.obstacle)})
                    ready(Started(address, registry.names, url, data_dir))
                    all_ended = await runner.run()
        if not all_ended:
            leave(0)


@asynccontextmanager
async def operator(settings: Settings) -> AsyncIterator[Operator]:
    """What an operator's command works with, over SQL alone.

    Raises:
        SettingsError, SchemaError, StoreUnavailable: it cannot work; the message says why.
    """
    url = settings.require_database_url()
    await migrate.require_head(settings.direct(url) or url, writes=False)
    async with Database(
        url,
        name="perdure operator",
        connections=OPERATOR_CONNECTIONS,
        statement_seconds=OPERATOR_SECONDS,
        pooled=settings.pooled,
        by_index=False,
    ) as database:
        try:
            yield Operator(database, Notifier(database) if settings.notify else None)
        except asyncpg.InsufficientPrivilegeError as refused:
            raise SettingsError(
                "The role in DATABASE_URL may not do this: changes take one in perdure_app, and arguments, results and "
                "errors perdure_payloads"
            ) from refused


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


@asynccontextmanager
async def _operations(settings: Settings, role: str) -> AsyncIterator[Operations]:
    """Answer operators from the first moment to the last."""
    guard = Guard([authority(settings.ops_host), *settings.allowed_hosts], addresses=True, pages=True)
    operations = Operations(role, guard, None if role == "worker" else settings.ui_password)
    if settings.ops_port is not None:
        await operations.listen(settings.ops_host, settings.ops_port, required="ops_port" in settings.model_fields_set)
    try:
        async with background("loop lag", metrics.watch_loop):
            yield operations
    finally:
        await operations.stop()


# -- the parts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Process:
    database: Database
    store: Store
    control: Store
    control_database: Database
    notifier: Notifier | None = None

    @property
    def pools(self) -> dict[str, Database]:
        """By what they are for."""
        return {"requests": self.database, "control": self.control_database}


@asynccontextmanager
async def _storage(settings: Settings, url: str, name: str) -> AsyncIterator[_Process]:
    """The store for requests and handlers, and one whose connections they cannot use up."""
    async with (
        Database(url, name=name, connections=settings.database_connections, pooled=settings.pooled) as database,
        Database(url, name=f"{name} control", connections=CONTROL_CONNECTIONS, pooled=settings.pooled) as control,
    ):
        if not settings.notify:
            yield _Process(database, Store(database), Store(control), control)
            return
        notifier = Notifier(control)
        async with background("notifier", notifier.run):
            yield _Process(database, Store(database, notifier), Store(control, notifier), control, notifier)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await notifier.send()


@asynccontextmanager
async def _listener(settings: Settings, url: str, *, for_worker: bool = True) -> AsyncIterator[Listener | None]:
    """What hears notifications; None where all is found out by polling."""
    direct = settings.direct(url)
    if not settings.notify or direct is None:
        log.info("notifications are not heard; changes are found by polling")
        yield None
        return
    listener = Listener(direct, for_worker=for_worker)
    async with background("listener", listener.run):
        yield listener


@asynccontextmanager
async def _api(
    settings: Settings,
    process: _Process,
    registry: Registry,
    listener: Listener | None,
    keys: Sequence[bytes],
    operations: Operations,
) -> AsyncIterator[str]:
    """Serve requests, and operators' pages; gives the endpoint's URL."""
    metrics.expect_refusals(kind.name.lower() for kind in ErrorKind)
    watches = Watches(listener, poll_seconds=settings.poll_seconds)
    async with (
        _access(settings) as (access, metadata),
        _listening(settings, process.store, registry, watches, keys, access, metadata, operations.scrape) as address,
        operations.pages(process.database, process.notifier, watches),
    ):
        yield address


@asynccontextmanager
async def _access(settings: Settings) -> AsyncIterator[tuple[Access, ResourceMetadata | None]]:
    """Who is let in, and what tells them where to get a token."""
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
    scrape: Scrape,
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
    scrape.limits = limits
    subscriptions = Subscriptions(store, watches, catalogue, limits, seconds=settings.stream_seconds)
    tools = Tools(store, catalogue, local, inline, limits, scopes=settings.call_scopes, private=settings.auth != "none")
    host = authority(settings.host)
    server = Server(
        Endpoint(Methods(tools, Tasks(store), subscriptions), access, lenient_task_names=settings.lenient_task_names),
        Guard(settings.known_hosts(), settings.allowed_origins),
        metadata,
        max_body=settings.max_body_bytes,
        max_connections=settings.max_connections,
        grace_seconds=settings.grace_seconds,
    )
    try:
        port = await server.start(settings.host, settings.port, reuse_port=settings.reuse_port)
    except OSError as refused:
        raise SettingsError(
            f"The API cannot listen on {host}:{settings.port} ({reason(refused)}): "
            "choose another with --host and --port, or PERDURE_HOST and PERDURE_PORT"
        ) from refused
    try:
        yield f"http://{host}:{port}{PATH}"
    finally:
        await server.stop()
        await catalogue.close()
        local.close()


def _runner(settings: Settings, process: _Process, registry: Registry, listener: Listener | None) -> Runner:
    metrics.expect_tools(tool.name for tool in registry.durable())
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


def _require_durable(registry: Registry) -> None:
    if not registry.durable():
        raise DeclarationError('None of these tools runs as a task: a worker has nothing to do for task="never"')
