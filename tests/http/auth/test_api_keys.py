"""Static API keys: whose they are, what is kept of them, and how they are replaced while the service runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from app.domain.principal import Principal
from app.domain.scopes import Scopes
from app.domain.task import Json
from app.errors import SettingsError
from app.http.auth.access import Access
from app.http.auth.api_keys import LOOK_SECONDS, MAX_FILE, ApiKeys, line, new_key, read_keys
from app.methods.call import Call
from tests.http.scripted import Caller, said, scripted

OLD, NEW, OTHER = new_key(), new_key(), new_key()
PING = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
HASH = "sha256:" + "a1" * 32


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Filed:
    """A server that lets in whom a file names."""

    def __init__(self, caller: Caller, path: Path, clock: Clock) -> None:
        self._caller, self._path, self._clock = caller, path, clock

    async def owner(self, key: str) -> str | None:
        """Whom a key lets in; None for nobody."""
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        body, _ = self._caller.request("tools/call", {"name": "it"})
        body = body.replace(b"2026-07-28", b"DRAFT-2026-v1")
        async with self._caller.session.post(self._caller.url, data=body, headers=headers) as response:
            if response.status == 401:
                return None
            owner: str = (await response.json())["result"]["content"][0]["text"]
            return owner

    def becomes(self, *lines: str) -> None:
        """Put another file in its place, and let the time pass after which that is seen."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text("\n".join(lines))
        fresh.replace(self._path)
        self.wait(LOOK_SECONDS)

    def holds(self, data: bytes | None) -> None:
        """Write these bytes into the file as it is; None takes it away."""
        if data is None:
            self._path.unlink()
        else:
            before = self._path.stat()
            self._path.write_bytes(data)
            os.utime(self._path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._clock.now += seconds


@asynccontextmanager
async def filed(path: Path, *lines: str, text: str = "") -> AsyncIterator[Filed]:
    async def look(call: Call) -> Json:
        return said(call.owner)

    clock = Clock()
    async with scripted(look, access=Access(_keys(path, lines, text, clock))) as caller:
        yield Filed(caller, path, clock)


def _keys(path: Path, lines: tuple[str, ...], text: str, clock: Clock) -> ApiKeys:
    path.write_text("\n".join(lines))
    return ApiKeys(text, path, clock=clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys"


# -- what is kept of a key --------------------------------------------------------------------------------------------


def test_a_key_cannot_be_guessed_and_its_line_does_not_hold_it() -> None:
    keys = [new_key() for _ in range(100)]
    assert len(set(keys)) == 100
    assert all(key.startswith("perdure_") and len(key) == 51 for key in keys)
    for key in keys:
        written = line("ci", key, ("tools:call",))
        assert written == f"ci sha256:{hashlib.sha256(key.encode()).hexdigest()} tools:call"
        assert key not in written


def test_nothing_shows_a_key_or_its_hash() -> None:
    keys = ApiKeys(line("ci", OLD))
    shown = repr(keys) + str(keys) + repr(Access(keys))
    assert OLD not in shown
    assert hashlib.sha256(OLD.encode()).hexdigest() not in shown


def test_lines_are_read_with_their_comments_and_scopes() -> None:
    text = f"# ours\n\n  ada  {HASH}   # by hand\ngrace sha256:{'b2' * 32} admin\t read\n"
    assert read_keys(text, Scopes([("admin", "write")])) == {
        bytes.fromhex("a1" * 32): Principal("ada"),
        bytes.fromhex("b2" * 32): Principal("grace", frozenset({"admin", "write", "read"})),
    }


def test_an_owner_may_have_several_keys_and_a_line_may_stand_there_twice() -> None:
    lines = [line("ada", OLD), line("ada", NEW), line("ada", OLD)]
    assert set(read_keys("\n".join(lines), Scopes()).values()) == {Principal("ada")}
    assert len(read_keys(",".join(lines), Scopes())) == 2


SECRET = "hush-this-is-a-key-in-the-wrong-place"


@pytest.mark.parametrize(
    ("text", "number", "says"),
    [
        (f"ada {SECRET}", 1, "after the owner stands sha256:"),
        (SECRET, 1, "after the owner stands sha256:"),
        (f"\n# a\nada {HASH[:-1]}", 3, "after the owner stands sha256:"),
        (f"ada {HASH.upper()}", 1, "after the owner stands sha256:"),
        (f"ada sha256:{'g' * 64}", 1, "after the owner stands sha256:"),
        (f"{'x' * 257} {HASH}", 1, "an owner is written in up to 256 ASCII characters"),
        (f"\u00e4da {HASH}", 1, "an owner is written in up to 256 ASCII characters"),
        (f"a\x1bda {HASH}", 1, "an owner is written in up to 256 ASCII characters"),
        (f'ada {HASH} {SECRET}"', 1, "a scope cannot be used"),
        (f"ada {HASH}\ngrace {HASH}", 2, "the key stands in an earlier line already"),
        (f"ada {HASH}\nada {HASH} read", 2, "the key stands in an earlier line already"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_by_its_number_and_not_shown(text: str, number: int, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_keys(text, Scopes())
    assert str(caught.value).startswith(f"API keys, line {number}: {says}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("scope", ["", " ", "a b", "a,b", "a#b", "#a", 'a"b', "a\nb", "\u00e4"])
def test_a_line_never_grants_anything_else_than_was_asked_for(scope: str) -> None:
    with pytest.raises(SettingsError):
        line("ada", OLD, (scope,))


@pytest.mark.parametrize("owner", ["", "a b", "a,b", "a#b", "#a", "a\nb"])
def test_a_line_is_never_another_owners(owner: str) -> None:
    with pytest.raises(SettingsError):
        line(owner, OLD)


# -- the file ---------------------------------------------------------------------------------------------------------


async def test_keys_are_replaced_without_a_restart(path: Path) -> None:
    async with filed(path, line("ada", OLD)) as server:
        assert [await server.owner(key) for key in (OLD, NEW)] == ["ada", None]
        server.becomes(line("ada", OLD), line("ada", NEW))
        assert [await server.owner(key) for key in (OLD, NEW)] == ["ada", "ada"]
        server.becomes(line("ada", NEW))
        assert [await server.owner(key) for key in (OLD, NEW)] == [None, "ada"]


async def test_a_file_that_is_written_in_place_is_seen_too(path: Path) -> None:
    async with filed(path, line("ada", OLD)) as server:
        server.holds(line("ada", NEW).encode())
        server.wait(LOOK_SECONDS)
        assert [await server.owner(key) for key in (OLD, NEW)] == [None, "ada"]


async def test_a_file_is_not_looked_at_with_every_request(path: Path) -> None:
    async with filed(path, line("ada", OLD)) as server:
        server.holds(line("ada", NEW).encode())
        server.wait(LOOK_SECONDS / 2)
        assert [await server.owner(key) for key in (OLD, NEW)] == ["ada", None]


@pytest.mark.parametrize("broken", [f"ada {SECRET}".encode(), b"\xff", b"#" * (MAX_FILE + 1), None])
async def test_a_file_that_cannot_be_used_leaves_the_old_keys_in_force_and_is_told_of_once(
    path: Path, broken: bytes | None
) -> None:
    async with filed(path, line("ada", OLD)) as server:
        with capture_logs() as logs:
            server.holds(broken)
            for _ in range(3):
                server.wait(LOOK_SECONDS)
                assert [await server.owner(key) for key in (OLD, NEW)] == ["ada", None]
            errors = [entry for entry in logs if entry["log_level"] == "error"]
            assert [entry["event"] for entry in errors] == [
                "API keys cannot be read again: those read before stay in force"
            ]
            assert SECRET not in str(logs)
            assert str(path) not in str(logs)
            server.becomes(line("ada", NEW))
            assert [await server.owner(key) for key in (OLD, NEW)] == [None, "ada"]


async def test_an_empty_file_lets_nobody_in_any_more(path: Path) -> None:
    async with filed(path, line("ada", OLD)) as server:
        server.becomes("# nobody")
        assert await server.owner(OLD) is None


async def test_keys_of_the_environment_stand_beside_those_of_the_file(path: Path) -> None:
    async with filed(path, line("ada", OLD), text=line("grace", OTHER)) as server:
        assert [await server.owner(key) for key in (OLD, OTHER)] == ["ada", "grace"]
        server.becomes(line("ada", NEW))
        assert [await server.owner(key) for key in (OLD, NEW, OTHER)] == [None, "ada", "grace"]


def test_without_any_key_nothing_starts(path: Path) -> None:
    with pytest.raises(SettingsError, match="There are no API keys"):
        ApiKeys("# none")
    with pytest.raises(SettingsError, match=r"PERDURE_API_KEYS_FILE.*cannot be read: No such file") as caught:
        ApiKeys(path=path)
    assert str(path) not in str(caught.value)
