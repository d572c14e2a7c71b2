"""Whatever is thrown at the endpoint is answered, soon and rightly, and leaves no half-made task behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.http.attacks import CAPABLE, MODERN, OLDER, REQUESTS, Attack, Request, bodies, heads, messages, rightly
from tests.http.target import Target, targeted
from tests.support.json_text import tree, write
from tests.support.rpc import DRAFT, PUBLISHED

KNOWN = [
    '{"jsonrpc":DEEP,"id":1,"method":"server/discover","params":{}}',
    '{"jsonrpc":"2.0","id":1,"method":"server/discover","params":DEEP,"id":["x"]}',
]
"""Bodies whose id is not found, or found though it is there twice."""


@pytest.mark.parametrize(
    ("version", "requests"),
    [(None, [*REQUESTS, *MODERN, *OLDER]), (DRAFT, [*REQUESTS, *MODERN]), (PUBLISHED, [*REQUESTS, *MODERN])]
    + [(version, [*REQUESTS, *OLDER]) for version in ("2025-11-25", "2025-06-18", "2025-03-26")],
)
def test_what_the_attacks_are_made_of_is_served_while_it_is_undamaged(
    db_url: str, version: str | None, requests: list[Request]
) -> None:
    with targeted(db_url) as target:
        for request in requests:
            assert "result" in _send(target, request, version), request


def test_a_client_that_offers_another_protocol_is_answered_in_this_one(db_url: str) -> None:
    with targeted(db_url) as target:
        for protocol in (b"h2c", b"websocket"):
            offer = [(b"Connection", b"Upgrade, HTTP2-Settings, close"), (b"Upgrade", protocol)]
            assert "result" in _send(target, ("server/discover", {}), None, *offer)


def test_a_damaged_message_is_answered_and_leaves_nothing_half_made(db_url: str) -> None:
    _throw(db_url, messages(), 400, *map(_known, KNOWN))


def test_a_damaged_body_is_answered_and_leaves_nothing_half_made(db_url: str) -> None:
    _throw(db_url, bodies(), 150)


def test_a_damaged_head_is_answered_and_leaves_nothing_half_made(db_url: str) -> None:
    head, message = rightly(("server/discover", {}), None, None)
    _throw(db_url, heads(), 250, Attack([*head, (b"Expect", b"\xff")], write(tree(message))))


def _throw(db_url: str, attacks: st.SearchStrategy[Attack], count: int, *known: Attack) -> None:
    """Throw so many attacks, the same ones each time, and those that once found something."""
    with targeted(db_url) as target:

        @settings(max_examples=count, deadline=None, derandomize=True, database=None)
        @given(attacks)
        def throw(attack: Attack) -> None:
            target.attack(attack)

        for attack in known:
            target.attack(attack)
        throw()


def _send(target: Target, request: Request, version: str | None, *more: tuple[bytes, bytes]) -> dict[str, Any]:
    head, message = rightly(request, version, CAPABLE)
    return target.attack(Attack([*head, *more], write(tree(message))))


def _known(body: str) -> Attack:
    head, _ = rightly(("server/discover", {}), None, None)
    return Attack(head, body.replace("DEEP", "[" * 100 + "]" * 100).encode())
