"""What a client takes, by its Accept header (core, "Sending Messages"; RFC 9110, "Accept")."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from app.domain.task import Json
from app.http.accept import Accept, read_accept
from app.methods.call import Call
from tests.http.scripted import said, scripted

BOTH, ONLY_JSON, ONLY_SSE, NEITHER = Accept(True, True), Accept(True, False), Accept(False, True), Accept(False, False)


@pytest.mark.parametrize(
    ("headers", "accept"),
    [
        ([], BOTH),
        ([""], BOTH),
        ([" , "], BOTH),
        (["application/json, text/event-stream"], BOTH),
        (["application/json", "text/event-stream"], BOTH),
        (["*/*"], BOTH),
        (["text/html, */*;q=0.1"], BOTH),
        (["application/*, text/*"], BOTH),
        (["Application/JSON ; charset=utf-8 , TEXT/EVENT-STREAM"], BOTH),
        (["application/json"], ONLY_JSON),
        (["application/*"], ONLY_JSON),
        (["text/html, application/json;q=0.001"], ONLY_JSON),
        (["*/*, text/event-stream;q=0"], ONLY_JSON),
        (["text/event-stream;q=0, */*;q=1"], ONLY_JSON),
        (["*/*, text/*;Q=0.000"], ONLY_JSON),
        (['application/json;profile="a,text/event-stream"'], ONLY_JSON),
        (['application/json;profile="a;q=0"'], ONLY_JSON),
        (["text/event-stream"], ONLY_SSE),
        (["text/*;q=0.5"], ONLY_SSE),
        (["application/*;q=0, text/*;q=0, text/event-stream"], ONLY_SSE),
        (["text/html"], NEITHER),
        (["*/*;q=0"], NEITHER),
        (["application/json;q=0"], NEITHER),
        (["application/json-seq, text/event-streams"], NEITHER),
    ],
)
def test_the_closest_range_that_matches_decides(headers: list[str], accept: Accept) -> None:
    assert read_accept(", ".join(headers)) == accept


@pytest.mark.parametrize(
    "part",
    [
        "application/json;q=2",
        "application/json;q=-1",
        "application/json;q=",
        "application/json;q=nan",
        "application/json;q=0.1234",
        "application",
        "application/json/x",
        "json",
        "*",
        "*/json",
        ";q=1",
        '"application/json"',
        '"',
        "\udcff",
        "\u0000",
    ],
)
def test_what_is_malformed_matches_nothing_and_harms_nothing(part: str) -> None:
    assert read_accept(part) == NEITHER
    assert read_accept(f"{part}, text/event-stream") in (ONLY_SSE, NEITHER)
    assert read_accept(f"text/event-stream, {part}") == ONLY_SSE


@pytest.mark.parametrize("flood", ['"' * 8000, '"\\' * 4000, ";q" * 4000, "," * 8000, "a/b;" * 2000, " " * 8000])
def test_no_header_takes_long_to_read(flood: str) -> None:
    started = time.perf_counter()
    read_accept(f"text/x{flood}")
    assert time.perf_counter() - started < 0.5


def test_headers_of_any_length_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(300):
            read_accept(f"{number}/{'x' * 100_000}")
        assert tracemalloc.get_traced_memory()[0] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sent", ["text/html", "application/xml, image/*", "*/*;q=0", "nonsense"])
async def test_a_client_that_takes_neither_form_is_told_which_there_are(sent: str) -> None:
    async with scripted(_done) as client:
        body, headers = client.request("tools/call", {"name": "it"})
        reply = await client.post(body, headers | {"Accept": sent}, unread=True)
        assert reply.refusal[:2] == (406, -32600)
        assert "application/json or text/event-stream" in reply.error["message"]


async def test_a_client_that_does_not_say_what_it_takes_gets_json() -> None:
    async with scripted(_done) as client:
        body, headers = client.request("tools/call", {"name": "it"})
        headers["Content-Type"] = "application/json"
        skipped = client.session.post(client.url, data=body, headers=headers, skip_auto_headers=["Accept"])
        async with skipped as response:
            assert (await client.receive(response, body)).headers["Content-Type"] == "application/json"


async def _done(_: Call) -> Json:
    return said("done")
