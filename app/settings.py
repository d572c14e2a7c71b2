"""Everything that can be set, by environment: `DATABASE_URL`, and `PERDURE_…` for the rest.

A number's unit is in its name; a duration is written with its unit (`24h`). Settings are read once, by the command
line, and handed on as values.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.domain.duration import parse_duration
from app.domain.scopes import SCOPE, Scopes
from app.domain.urls import is_secure
from app.errors import SettingsError

PREFIX = "PERDURE_"
KEY_CHARACTERS = 32
PASSWORD_CHARACTERS = 16
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that only the authorization server can make."""
_OTHERS = frozenset(
    ("PERDURE_URL", "PERDURE_TOKEN", "PERDURE_POSTGRES_HOME", "PERDURE_POSTGRES_USER", "PERDURE_EXAMPLES_CSV_DIR")
)
"""Variables that are no settings of a process, and are read elsewhere."""

# Kubernetes tells each container where the services of its namespace are. Of one that is called perdure, or
# perdure-ops, it says so in variables that look like ours: PERDURE_PORT=tcp://10.0.0.1:80.
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
_LINKED = re.compile(r"(tcp|udp|sctp)://")
Duration = Annotated[int, BeforeValidator(parse_duration)]
"""Written as `90s` or `24h`, held in milliseconds."""


def _split(value: Any) -> Any:
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


OpsPort = Annotated[Annotated[int, Field(ge=0, le=65535)] | None, BeforeValidator(lambda v: None if v == "off" else v)]
"""A port, or None where it is written `off`."""


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""Written with commas between."""


class Settings(BaseSettings):
    """The values of one process. Secrets do not show in its repr."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        validate_by_name=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
        validate_default=False,
        frozen=True,
    )

    database_url: SecretStr | None = Field(
        default=None,
        validation_alias="DATABASE_URL",
        description="The PostgreSQL database, as postgresql://user:password@host:5432/name. "
        "Where it is not set, `perdure dev` runs a PostgreSQL of its own.",
    )
    pooled: bool = Field(
        default=False,
        description="Whether DATABASE_URL leads through a pooler that gives each transaction another connection, such "
        "as PgBouncer in transaction mode.",
    )
    direct_url: SecretStr | None = Field(
        default=None,
        description="Behind such a pooler, the database's own URL: notifications and migrations go there. Where it is "
        "not set, processes find out by polling.",
    )
    database_connections: int = Field(
        default=10, ge=2, le=1000, description="The most connections to the database that a process keeps in its pool."
    )
    notify: bool = Field(
        default=True,
        description="Whether processes wake each other with LISTEN and NOTIFY. Without it everything still works, "
        "by polling.",
    )
    host: str = Field(default="127.0.0.1", description="The address that the API listens on.")
    port: int = Field(default=8765, ge=0, le=65535, description="The TCP port that the API listens on; 0: a free one.")
    reuse_port: bool = Field(
        default=False,
        description="Whether other API processes of this machine may listen on the same port, and the system spreads "
        "connections over them; `perdure serve --processes` sets it.",
    )
    ops_host: str = Field(
        default="127.0.0.1",
        description="The address that health, metrics and what else is for operators are served on.",
    )
    ops_port: OpsPort = Field(
        default=8766,
        description="The TCP port for operators; 0: a free one; off: none. A process that finds the default one taken, "
        "as a worker does beside an API on one machine, warns and goes on without; one that is set must be free.",
    )
    ui_password: SecretStr | None = Field(
        default=None,
        description="What operators log in with to the pages under /ui on the operations port, at least 16 characters; "
        "where it is not set, there are no pages.",
    )
    allowed_hosts: Names = Field(
        default=(),
        description="Names, separated by commas, that clients may know the API by beside local ones, and probes and "
        "scrapers the operations port; * for any.",
    )
    allowed_origins: Names = Field(
        default=(),
        description="Origins such as https://app.example.com, separated by commas, whose pages may call the API "
        "beside local ones; * for any.",
    )
    auth: Literal["none", "keys", "oauth"] = Field(
        default="none",
        description="Who may call: none lets everybody in as one principal, keys asks for an API key, oauth for an "
        "access token of an authorization server.",
    )
    allow_anonymous: bool = Field(
        default=False,
        description="Whether the API may listen on an address that others can reach though PERDURE_AUTH is none.",
    )
    api_keys: SecretStr | None = Field(
        default=None,
        description="For PERDURE_AUTH=keys, lines that `perdure keys new OWNER` prints, separated by commas.",
    )
    api_keys_file: Path | None = Field(
        default=None,
        description="For PERDURE_AUTH=keys, a file of such lines; it is read again when it changes.",
    )
    public_url: str | None = Field(
        default=None,
        description="The URL that clients know the endpoint by, such as https://mcp.example.com/mcp; its host is one "
        "that the API is known by. PERDURE_AUTH=oauth needs it.",
    )
    oauth_issuer: str | None = Field(
        default=None,
        description="For PERDURE_AUTH=oauth, the authorization server, exactly as its tokens name it.",
    )
    oauth_audience: Names = Field(
        default=(),
        description="For PERDURE_AUTH=oauth, whom tokens must be issued for, separated by commas; by default "
        "PERDURE_PUBLIC_URL.",
    )
    oauth_algorithms: Names = Field(
        default=("RS256", "ES256"),
        description="For PERDURE_AUTH=oauth, the algorithms that tokens may be signed with, separated by commas: "
        "RS256 to RS512, PS256 to PS512, ES256 to ES512 or EdDSA.",
    )
    oauth_jwks_url: str | None = Field(
        default=None,
        description="For PERDURE_AUTH=oauth, where the authorization server's keys are; by default its metadata says.",
    )
    call_scopes: Names = Field(
        default=(),
        description="The scopes that every call of a tool needs, separated by commas, beside what the tool asks for.",
    )
    broader_scopes: Names = Field(
        default=(),
        description="Which scopes imply others, as broad>narrow, separated by commas: admin>write,write>read.",
    )
    lenient_task_names: bool = Field(
        default=True,
        description="Whether requests of tasks/* may come without the header Mcp-Name, as a client in wide use does.",
    )
    request_state_key: Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=(),
        description="A secret of at least 32 characters, the same for every API process: it authenticates what clients "
        "carry from a question on the request to their retry. To replace it, write the new one, a comma and the old "
        "one, until no such question is open any more. `perdure serve` needs it; `perdure dev` makes its own.",
    )
    companion_tools: bool = Field(
        default=False,
        description="Whether to offer the tools task_result, task_answer and task_cancel, through which clients that "
        "know nothing of tasks reach a task whose call took too long to be waited for.",
    )
    max_calls_per_minute: int = Field(
        default=120_000,
        ge=1,
        description="How many tools one principal may call at an API process in a minute, on average. Reading tasks is "
        "not limited.",
    )
    max_connections: int = Field(
        default=10_000, ge=1, description="The most connections of clients that an API process holds."
    )
    max_live_tasks: int = Field(
        default=100_000, ge=1, description="The most tasks that have not ended which one principal may have."
    )
    max_inline_calls: int = Field(
        default=1_000,
        ge=1,
        description="The most calls of one principal that an API process answers on their requests at once.",
    )
    max_streams: int = Field(
        default=1_000,
        ge=1,
        description="The most subscriptions of one principal that an API process keeps open at once.",
    )
    max_stream_tasks: int = Field(
        default=1_000, ge=1, le=100_000, description="The most tasks that one subscription may name."
    )
    stream_seconds: float = Field(
        default=3600,
        ge=1,
        le=604_800,
        description="The age at which a subscription is ended, in seconds; its client opens another. It moves streams "
        "to API processes that were added.",
    )
    max_body_bytes: int = Field(
        default=4_194_304, ge=1024, le=268_435_456, description="The largest request body that is read, in bytes."
    )
    max_result_bytes: int = Field(
        default=10_485_760,
        ge=1024,
        le=268_435_456,
        description="The largest result of a tool, in bytes; a task whose result is larger fails.",
    )
    slots: int = Field(default=16, ge=1, le=1000, description="How many handlers a worker runs at once.")
    lease_seconds: float = Field(
        default=20,
        ge=1,
        le=3600,
        description="How long a worker counts as alive after a beat, in seconds; it beats four times in it.",
    )
    grace_seconds: float = Field(
        default=25,
        ge=0,
        le=86_400,
        description="How long running work may go on after SIGTERM, in seconds. Keep it below what your platform "
        "waits before it kills.",
    )
    poll_seconds: float = Field(
        default=1,
        ge=0.05,
        le=60,
        description="How often a worker looks for work that nobody told it of, in seconds.",
    )
    retention: Duration = Field(
        default=parse_duration("24h"),
        description="How long an ended task can be read where its tool does not say, as a duration such as 24h.",
    )
    data_dir: Path | None = Field(
        default=None,
        description="The folder in which `perdure dev` keeps its own PostgreSQL; by default .perdure in the current "
        "folder, or /var/lib/perdure if that lies where, as root, its server could not get in.",
    )
    log_format: Literal["console", "json"] | None = Field(
        default=None, description="How the log is written: console or json; by default console on a terminal."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least that is logged: debug, info, warning or error."
    )

    @model_validator(mode="before")
    @classmethod
    def _without_service_links(cls, values: dict[str, Any]) -> dict[str, Any]:
        ports = ("port", "ops_port")
        return {name: it for name, it in values.items() if not (name in ports and _LINKED.match(str(it)))}

    @field_validator("database_url", "direct_url")
    @classmethod
    def _is_postgresql(cls, url: SecretStr | None) -> SecretStr | None:
        if url is None:
            return None
        text = url.get_secret_value().strip()
        if not re.match(r"postgres(ql)?(\+\w+)?://", text):
            raise ValueError("it is not the URL of a PostgreSQL database")
        return SecretStr(text)

    @field_validator("request_state_key")
    @classmethod
    def _is_long(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if any(len(key.get_secret_value()) < KEY_CHARACTERS for key in keys):
            raise ValueError(f"it has fewer than {KEY_CHARACTERS} characters")
        return keys

    @field_validator("ui_password")
    @classmethod
    def _is_hard_to_guess(cls, password: SecretStr | None) -> SecretStr | None:
        if password is not None and len(password.get_secret_value()) < PASSWORD_CHARACTERS:
            raise ValueError(f"it has fewer than {PASSWORD_CHARACTERS} characters")
        return password

    @field_validator("public_url", "oauth_issuer", "oauth_jwks_url")
    @classmethod
    def _is_web_address(cls, url: str | None) -> str | None:
        if url is not None and (not is_secure(url) or "?" in url or "#" in url):
            raise ValueError("it is not an https URL without a query (http is for this machine only)")
        return url

    @field_validator("oauth_algorithms")
    @classmethod
    def _can_only_be_signed_by_others(cls, algorithms: tuple[str, ...]) -> tuple[str, ...]:
        if not algorithms or not set(algorithms) <= set(ALGORITHMS):
            raise ValueError("it names an algorithm that cannot be allowed")
        return algorithms

    @field_validator("call_scopes")
    @classmethod
    def _are_scopes(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if not all(SCOPE.fullmatch(scope) for scope in scopes):
            raise ValueError("it names what cannot be a scope")
        return scopes

    @field_validator("broader_scopes")
    @classmethod
    def _are_pairs(cls, pairs: tuple[str, ...]) -> tuple[str, ...]:
        if not all(len(pair.split(">")) == 2 and all(map(SCOPE.fullmatch, pair.split(">"))) for pair in pairs):
            raise ValueError("it is not made of pairs broad>narrow")
        return pairs

    @classmethod
    def read(cls, **given: Any) -> Self:
        """Read the environment. What is given by name goes before it, unless it is None.

        Raises:
            SettingsError: a value cannot be used; the message names its variable and what that takes.
        """
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as unusable:
            wrong = [_explain(str(error["loc"][0]), error["msg"]) for error in unusable.errors(include_input=False)]
            raise SettingsError(" ".join(wrong)) from None  # the cause holds the values

    def require_database_url(self) -> str:
        """The database's URL, password included.

        Raises:
            SettingsError: it is not set.
        """
        if self.database_url is None:
            raise SettingsError("DATABASE_URL is not set: it takes postgresql://user:password@host:5432/name")
        return self.database_url.get_secret_value()

    def direct(self, url: str) -> str | None:
        """The URL that leads to the database itself where this one may lead through a pooler; None if there is none."""
        if not self.pooled:
            return url
        return None if self.direct_url is None else self.direct_url.get_secret_value()

    def scopes(self) -> Scopes:
        """Which scopes imply others."""
        return Scopes((broad, narrow) for broad, narrow in (pair.split(">") for pair in self.broader_scopes))

    def known_hosts(self) -> list[str]:
        """The names that clients may know the API by, beside local ones."""
        public = urlsplit(self.public_url or "").hostname
        host = f"[{self.host}]" if ":" in self.host else self.host
        return [host, *self.allowed_hosts, *([public] if public else [])]

    def check_exposure(self) -> None:
        """See to it that nobody opens the API to a network by accident.

        Raises:
            SettingsError: it would let everybody in from outside of this machine, and that was not said twice.
        """
        if self.auth == "none" and not self.allow_anonymous and not _is_loopback(self.host):
            raise SettingsError(
                f"The API would let everybody in who reaches {self.host}: set PERDURE_AUTH to keys or oauth, or say "
                "once more that this is meant with PERDURE_ALLOW_ANONYMOUS=true"
            )

    def request_state_keys(self) -> list[bytes]:
        """The keys for requestState, the one that seals first; none where it is not set."""
        return [key.get_secret_value().encode() for key in self.request_state_key]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def variable(name: str) -> str:
    """The environment variable of a field."""
    return str(Settings.model_fields[name].validation_alias or f"{PREFIX}{name}".upper())


def unknown(variables: Iterable[str]) -> Iterator[str]:
    """What to say of variables that look like settings and are none."""
    known = _OTHERS.union(map(variable, Settings.model_fields))
    for name in sorted(variables):
        written = name.upper()
        if written.startswith(PREFIX) and written not in known and not _SERVICE_LINK.search(written):
            near = get_close_matches(written.removeprefix(PREFIX), [it.removeprefix(PREFIX) for it in known], n=1)
            yield f"{name} is no setting, and ignored{f': is {PREFIX}{near[0]} meant?' if near else '.'}"


def _explain(place: str, reason: str) -> str:
    name = "database_url" if place == "DATABASE_URL" else place
    reason = reason.removeprefix("Value error, ")
    takes = Settings.model_fields[name].description
    return f"{variable(name)} cannot be used: {reason[0].lower()}{reason[1:]}. {takes}"
