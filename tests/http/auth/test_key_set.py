"""The authorization server's keys: fetched once for all, kept, fetched again for an unknown one, and not for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.http.auth import key_set
from app.http.auth.key_set import AGAIN_SECONDS, FRESH_SECONDS, STALE_SECONDS
from tests.http.auth.door import Door, door
from tests.support.issuer import FIRST, KEYS, OPENID, SERVER, Issuer, Mode, SigningKey, issuing
from tests.support.waiting import eventually

SECOND = SigningKey("second")
PLACES = [SERVER + "/tenant", OPENID + "/tenant", "/tenant" + OPENID]
"""Where the metadata of an issuer with the path /tenant may be, in the order of asking."""


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def refused_for_now(opened: Door, token: str) -> None:
    """It is not called a bad token: nobody can tell."""
    reply = await opened.refuses(token)
    says = "Unavailable: the keys of the authorization server cannot be read. Send the request again."
    assert reply.refusal == (503, -32603, says)
    assert reply.headers["Retry-After"] == "5"
    assert "WWW-Authenticate" not in reply.headers


# -- how often they are fetched ---------------------------------------------------------------------------------------


async def test_the_keys_are_fetched_once_for_all_requests(issuer: Issuer) -> None:
    async with door(issuer) as opened:
        assert issuer.requests.total() == 0
        await asyncio.gather(*(opened.admits(issuer.token(sub=f"user {number}")) for number in range(50)))
        await opened.admits(issuer.token())
    assert issuer.requests == {SERVER: 1, KEYS: 1}


async def test_a_key_that_is_new_is_found_at_once_by_one_more_fetch(issuer: Issuer, clock: Clock) -> None:
    async with door(issuer, clock=clock) as opened:
        await opened.admits(issuer.token())
        issuer.keys = [SECOND.jwk()]
        clock.now += AGAIN_SECONDS
        await asyncio.gather(*(opened.admits(issuer.token(SECOND)) for _ in range(20)))
        assert issuer.fetches == 2
        assert "does not publish" in (await opened.refuses(issuer.token())).error["message"]  # it was withdrawn
        assert issuer.fetches == 2


async def test_made_up_key_ids_cost_the_authorization_server_next_to_nothing(issuer: Issuer, clock: Clock) -> None:
    made_up = [issuer.token(head={"kid": f"made up {number}"}) for number in range(20)]
    async with door(issuer, clock=clock) as opened:
        await opened.admits(issuer.token())
        for fetches in (1, 2, 3):
            replies = await asyncio.gather(*(opened.refuses(token) for token in made_up))
            assert {reply.status for reply in replies} == {401}
            assert issuer.fetches == fetches
            clock.now += AGAIN_SECONDS
        await opened.admits(issuer.token())


async def test_keys_that_have_aged_are_fetched_again_while_requests_go_on(issuer: Issuer, clock: Clock) -> None:
    async with door(issuer, clock=clock) as opened:
        await opened.admits(issuer.token())
        clock.now += FRESH_SECONDS
        issuer.mode = "slow"
        await opened.admits(issuer.token())
        await eventually(lambda: _asked(issuer, SERVER, 2))
        await opened.admits(issuer.token())
        issuer.keys = [SECOND.jwk()]
        issuer.answering.set()

        async def withdrawn() -> bool:
            return await opened.status(issuer.token()) == 401

        await eventually(withdrawn)
        await opened.admits(issuer.token(SECOND))
        assert issuer.fetches == 2


async def _asked(issuer: Issuer, path: str, times: int) -> bool:
    return issuer.requests[path] == times


# -- while they cannot be had -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["down", "failing", "slow", "redirecting", "too large", "garbage", "nested", "a list"])
async def test_while_the_keys_cannot_be_had_no_token_is_called_a_bad_one(
    issuer: Issuer, clock: Clock, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_set, "FETCH_SECONDS", 0.2)
    issuer.mode = mode
    async with door(issuer, clock=clock) as opened:
        with capture_logs() as logs:
            await asyncio.gather(*(refused_for_now(opened, issuer.token()) for _ in range(5)))
        asked = issuer.requests.copy()
        assert max(asked.values()) == (2 if mode == "down" else 1)  # aiohttp sends a GET again that was cut off
        assert not any(path.startswith("/moved") for path in asked)
        warnings = [line for line in logs if line["log_level"] == "warning"]
        assert [line["event"] for line in warnings] == ["the keys of the authorization server cannot be read"]
        assert [line for line in logs if line["log_level"] == "error"] == []
        issuer.mode = "up"
        await refused_for_now(opened, issuer.token())
        assert issuer.requests == asked  # it was asked just now
        clock.now += AGAIN_SECONDS
        await opened.admits(issuer.token())


async def test_keys_that_were_read_stay_good_for_a_while_when_the_server_is_gone(issuer: Issuer, clock: Clock) -> None:
    async with door(issuer, clock=clock) as opened:
        await opened.admits(issuer.token())
        issuer.mode = "down"
        for seconds in (FRESH_SECONDS, FRESH_SECONDS, STALE_SECONDS - 2 * FRESH_SECONDS - 1):
            clock.now += seconds
            await opened.admits(issuer.token())
        await refused_for_now(opened, issuer.token(SECOND))
        clock.now += 1
        await refused_for_now(opened, issuer.token())
        issuer.mode = "up"
        clock.now += AGAIN_SECONDS
        await opened.admits(issuer.token())


async def test_a_server_that_stops_does_not_wait_for_a_fetch(issuer: Issuer) -> None:
    issuer.mode = "slow"
    async with asyncio.timeout(4), door(issuer) as opened:
        waiting = asyncio.create_task(opened.status(issuer.token()))
        await eventually(lambda: _asked(issuer, SERVER, 1))
        waiting.cancel()


# -- where they are ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
async def test_metadata_are_found_at_each_of_the_known_places(place: str) -> None:
    async with issuing("/tenant") as issuer:
        [document] = issuer.metadata.values()
        issuer.metadata = {place: document}
        async with door(issuer) as opened:
            await opened.admits(issuer.token())
        assert list(issuer.requests) == [*PLACES[: PLACES.index(place) + 1], KEYS]


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": "http://keys.example/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": ["/keys"]},
    ],
)
async def test_metadata_of_another_issuer_or_without_a_safe_place_are_not_used(
    issuer: Issuer, change: dict[str, Any]
) -> None:
    issuer.metadata[SERVER] |= change
    async with door(issuer) as opened:
        await refused_for_now(opened, issuer.token())
    assert issuer.fetches == 0


async def test_where_the_operator_says_where_the_keys_are_nothing_is_looked_up(issuer: Issuer) -> None:
    async with door(issuer, keys_at=issuer.url + KEYS) as opened:
        await opened.admits(issuer.token())
    assert issuer.requests == {KEYS: 1}


# -- which are used ---------------------------------------------------------------------------------------------------

OF_NO_USE: dict[str, Any] = {
    "private": lambda: FIRST.jwk(private=True),
    "for encryption": lambda: FIRST.jwk() | {"use": "enc"},
    "for another algorithm": lambda: FIRST.jwk() | {"alg": "RS512"},
    "symmetric": lambda: {"kty": "oct", "kid": "first", "k": "c2VjcmV0"},
    "a curve": lambda: SigningKey("first", "P-256").jwk(),
    "broken": lambda: FIRST.jwk() | {"n": 7},
    "half there": lambda: {"kty": "RSA", "kid": "first", "n": "AQAB"},
    "of an odd type": lambda: {"kty": ["RSA"], "kid": "first"},
    "no object": lambda: "first",
    "nothing": lambda: None,
    "an odd curve": lambda: {"kty": "OKP", "kid": "first", "crv": "X25519", "x": "AAAA"},
    "odd throughout": lambda: {"kty": "EC", "kid": ["first"], "crv": {}, "x": [], "y": 1, "alg": 7, "use": "sig"},
}


@pytest.mark.parametrize("name", OF_NO_USE)
async def test_an_entry_that_is_of_no_use_is_passed_over(issuer: Issuer, name: str) -> None:
    issuer.keys = [OF_NO_USE[name](), SECOND.jwk()]
    async with door(issuer) as opened:
        assert "does not publish" in (await opened.refuses(issuer.token())).error["message"]
        await opened.admits(issuer.token(SECOND))


async def test_an_rsa_key_that_is_too_short_is_not_used(issuer: Issuer) -> None:
    short = SigningKey("short", "RSA-1024")
    issuer.keys = [short.jwk(), SECOND.jwk()]
    async with door(issuer) as opened:
        assert (
            "does not publish" in (await opened.refuses(issuer.token(SECOND, head={"kid": "short"}))).error["message"]
        )
        await opened.admits(issuer.token(SECOND))


async def test_a_key_on_another_curve_is_not_used(issuer: Issuer) -> None:
    right, other = SigningKey("right", "P-256"), SigningKey("other", "P-384")
    issuer.keys = [right.jwk(), other.jwk()]
    async with door(issuer) as opened:
        await opened.admits(issuer.token(right))
        token = issuer.token(right, head={"kid": "other"})
        assert "does not publish" in (await opened.refuses(token)).error["message"]
    async with door(issuer, algorithms=["ES384"]) as opened:
        await opened.admits(issuer.token(other))


async def test_only_so_many_keys_are_read(issuer: Issuer) -> None:
    issuer.keys = [*[{"kty": "oct"}] * key_set.MAX_KEYS, FIRST.jwk()]
    async with door(issuer) as opened:
        await refused_for_now(opened, issuer.token())


async def test_a_set_without_a_key_is_no_set(issuer: Issuer, clock: Clock) -> None:
    async with door(issuer, clock=clock) as opened:
        await opened.admits(issuer.token())
        issuer.keys = []
        clock.now += FRESH_SECONDS
        for _ in range(3):
            await opened.admits(issuer.token())
        await refused_for_now(opened, issuer.token(SECOND))
