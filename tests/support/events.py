"""A stream of events as this server writes it: stricter than what any client would read."""

from __future__ import annotations

from tests.support.judges import demand

_EVENT, _DATA = b"event: message\n", b"data: "


def read_events(body: bytes) -> tuple[list[bytes], int]:
    """The data of all events of a stream that has ended, and how many comments there were.

    Each event is one `event: message` and one `data:` line, each comment one line of its own, and a blank line ends
    either. The last is an event: nothing comes after the response.
    """
    demand(body.endswith(b"\n\n"), f"a stream that ends in the middle of an event: {body[-200:]!r}")
    demand(b"\r" not in body, "a carriage return, which ends a line of a stream")
    blocks = body.removesuffix(b"\n\n").split(b"\n\n")
    events = [_data(block) for block in blocks if not is_comment(block)]
    demand(not is_comment(blocks[-1]), "a comment after the response")
    return events, len(blocks) - len(events)


def is_comment(block: bytes) -> bool:
    """Whether this is a comment, and not an event."""
    return block.startswith(b":") and b"\n" not in block


def _data(block: bytes) -> bytes:
    data = block.removeprefix(_EVENT + _DATA)
    demand(block.startswith(_EVENT + _DATA) and b"\n" not in data, f"what is no event of one message: {block[:500]!r}")
    return data
