"""What is read is kept exactly or refused with the reason; what is written can be read back."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.task import Json
from app.errors import ErrorKind
from app.wire.envelope import Message, Unreadable, dumps, error_body, printable, read_message, result_body
from app.wire.nesting import MAX_DEPTH, too_deep

PARSE, INVALID = ErrorKind.PARSE, ErrorKind.INVALID_REQUEST


def body(params: str = "{}", request_id: str = '"a"', **members: str) -> bytes:
    """A request as text: members are JSON, `params` and `id` among them."""
    whole = {"jsonrpc": '"2.0"', "id": request_id, "method": '"m"', "params": params} | members
    return ("{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in whole.items()) + "}").encode()


def refused(text: bytes) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        read_message(text)
    return caught.value


def outcome(text: bytes) -> Message | Unreadable:
    """What came of a body. Anything else that is raised fails the test."""
    try:
        return read_message(text)
    except Unreadable as refusal:
        return refusal


def params_of(text: str) -> Any:
    return read_message(body(f'{{"x":{text}}}')).params["x"]


surrogates = st.characters(categories=["Cs"])
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.text(st.characters() | surrogates).map(
    # Two surrogates that stand together are one character in JSON, as they are in no Python text that JSON made.
    lambda text: json.loads(json.dumps(text))
)
numbers = st.integers(-(10**400), 10**400) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def exact(value: Any) -> Any:
    """A value that equals another only where types and signs of zero are the same too."""
    if isinstance(value, dict):
        return {key: exact(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [exact(inner) for inner in value]
    return type(value), value, isinstance(value, float) and math.copysign(1, value)


class TestReading:
    """Messages that are served."""

    def test_a_request_is_read_with_its_id_method_and_params(self) -> None:
        text = b' {"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"c"}}\n'
        assert read_message(text) == Message(7, "tools/list", {"cursor": "c"})

    def test_a_message_without_id_is_a_notification(self) -> None:
        assert read_message(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}').id is None

    def test_params_may_be_left_out(self) -> None:
        assert read_message(b'{"jsonrpc":"2.0","id":1,"method":"ping"}').params == {}

    @pytest.mark.parametrize("request_id", ["", "x" * 1000, "\ud800", 0, -1, 2**53 + 1, 2**64, 10**100])
    def test_an_id_is_kept_whatever_string_or_integer_it_is(self, request_id: str | int) -> None:
        assert read_message(body(request_id=json.dumps(request_id))).id == request_id

    @given(params=st.dictionaries(texts, values, max_size=4), request_id=texts | st.integers())
    def test_what_was_written_is_read_exactly(self, params: dict[str, Any], request_id: str | int) -> None:
        text = dumps({"jsonrpc": "2.0", "id": request_id, "method": "m", "params": params}).encode()
        message = read_message(text)
        assert exact(message.params) == exact(params)
        assert exact(message.id) == exact(request_id)

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            (r'"\u0000"', "\0"),
            (r'"\ud800"', "\ud800"),
            (r'"\ud83d\ude00"', "😀"),
            ('"\u202e\u200f"', "\u202e\u200f"),
            ('{"":1}', {"": 1}),
            ("9223372036854775808", 2**63),
            ("18446744073709551616", 2**64),
            ("-0.0", -0.0),
            ("0e999", 0.0),
            ("5e-324", 5e-324),
            ("1.7976931348623157e308", 1.7976931348623157e308),
        ],
    )
    def test_odd_values_are_kept(self, text: str, value: Any) -> None:
        assert exact(params_of(text)) == exact(value)


class TestRefusing:
    """Bodies that are not served, and what the client is told."""

    @pytest.mark.parametrize(
        ("text", "kind", "says"),
        [
            (b"", PARSE, "not JSON at character 0"),
            (b"{", PARSE, "not JSON"),
            (b'{"a":1}x', PARSE, "not JSON at character 7"),
            (b"\xef\xbb\xbf{}", PARSE, "not JSON"),
            ('{"id":1}'.encode("utf-16"), PARSE, "not UTF-8"),
            (b"[]", INVALID, "batches are not served"),
            (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', INVALID, "batches are not served"),
            (b"7", INVALID, "Send a JSON object"),
            (b"null", INVALID, "Send a JSON object"),
            (b'"text"', INVALID, "Send a JSON object"),
            (b"NaN", PARSE, "the body is NaN"),
        ],
    )
    def test_what_is_no_message_is_refused_without_id(self, text: bytes, kind: ErrorKind, says: str) -> None:
        refusal = refused(text)
        assert (refusal.kind, refusal.request_id) == (kind, None)
        assert says in refusal.message

    @pytest.mark.parametrize(
        "request_id", ["null", "true", "false", "1.0", "1.5", "[]", "{}", "NaN", "1e400", "9" * 5000]
    )
    def test_an_id_that_is_no_string_and_no_integer_is_refused_by_name(self, request_id: str) -> None:
        refusal = refused(body(request_id=request_id))
        assert refusal.request_id is None
        assert "id " in refusal.message

    @pytest.mark.parametrize(
        ("members", "says"),
        [
            ({"jsonrpc": '"1.0"'}, 'jsonrpc must be "2.0"'),
            ({"jsonrpc": "2.0"}, 'jsonrpc must be "2.0"'),
            ({"method": "null"}, "method must be a string"),
            ({"method": '["m"]'}, "method must be a string"),
            ({"params": "[]"}, "params must be an object"),
            ({"params": "null"}, "params must be an object"),
            ({"params": '"x"'}, "params must be an object"),
        ],
    )
    def test_a_wrong_member_is_named_and_the_id_sent_back(self, members: dict[str, str], says: str) -> None:
        refusal = refused(body(**members))
        assert (refusal.kind, refusal.request_id) == (INVALID, "a")
        assert says in refusal.message

    @pytest.mark.parametrize("outcome", ["result", "error"])
    def test_a_response_is_refused_as_one(self, outcome: str) -> None:
        refusal = refused(b'{"jsonrpc":"2.0","id":1,"%s":{}}' % outcome.encode())
        assert (refusal.kind, refusal.request_id) == (INVALID, 1)
        assert "Responses are not accepted" in refusal.message

    @pytest.mark.parametrize(
        ("params", "kind", "says"),
        [
            ('{"arguments":{"x":[0,NaN]}}', PARSE, "params.arguments.x[1] is NaN"),
            ('{"x":Infinity}', PARSE, "params.x is Infinity"),
            ('{"x":-Infinity}', PARSE, "params.x is -Infinity"),
            ('{"x":1e400}', INVALID, "params.x is a number too large"),
            ('{"x":-1e400}', INVALID, "params.x is a number too large"),
            ('{"x":1e-400}', INVALID, "params.x is a number too small"),
            ('{"x":' + "9" * 5000 + "}", INVALID, "params.x is an integer with too many digits"),
            ('{"arguments":{"x":1,"y":2,"x":1}}', INVALID, "params.arguments.x appears twice"),
        ],
    )
    def test_a_value_that_cannot_be_kept_is_refused_with_its_path_and_the_id(
        self, params: str, kind: ErrorKind, says: str
    ) -> None:
        refusal = refused(body(params))
        assert (refusal.kind, refusal.request_id) == (kind, "a")
        assert says in refusal.message

    def test_an_id_that_is_there_twice_is_not_sent_back(self) -> None:
        refusal = refused(b'{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}')
        assert refusal.request_id is None
        assert "id appears twice" in refusal.message

    def test_bytes_that_are_no_utf8_are_refused_with_the_id(self) -> None:
        refusal = refused(body('{"x":"?"}').replace(b"?", b"\xff"))
        assert (refusal.kind, refusal.request_id) == (PARSE, "a")

    def test_an_id_that_is_no_utf8_is_not_sent_back(self) -> None:
        assert refused(body(request_id='"?"').replace(b"?", b"\xc0\x80")).request_id is None

    @pytest.mark.parametrize("noise", ["x" * 5000, "\u202e" * 500, "\ud800" * 500, "\n\x1b[31m", "\0"])
    def test_messages_stay_short_and_printable_whatever_they_are_about(self, noise: str) -> None:
        refusal = refused(body(f"{{{json.dumps(noise)}:NaN}}"))
        assert len(refusal.message) < 200
        assert refusal.message.isprintable()


class TestNesting:
    """Depth is found before anything recurses."""

    @pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}"), ('[{"]":[', "]}]")])
    def test_the_limit_itself_is_served_and_one_more_is_refused(self, opens: str, closes: str) -> None:
        levels = opens.count("[") + opens.count("{")
        fits = (MAX_DEPTH - 2) // levels
        rest = MAX_DEPTH - 2 - fits * levels
        inner = "[" * rest + "0" + "]" * rest
        params = '{"x":' + opens * fits + inner + closes * fits + "}"
        read_message(body(params))
        refusal = refused(body(params.replace("0", "[0]")))
        assert (refusal.kind, refusal.request_id) == (INVALID, "a")
        assert "more than 64 levels" in refusal.message

    def test_brackets_in_strings_do_not_count(self) -> None:
        for text in ("[" * 1000, '"[' * 1000, "\\[" * 1000, '\\"[' * 1000, '[\\\\"' * 1000):
            assert params_of(json.dumps(text)) == text
            for listed in ([text, [], {text: text}], [text + "\\", text]):
                assert params_of(json.dumps(listed)) == listed

    def test_brackets_beside_each_other_do_not_count(self) -> None:
        assert params_of("[" + "[],{}," * 1000 + "0]")[-1] == 0

    @pytest.mark.parametrize(
        "order",
        ['"id":7,"params":X', '"params":X,"id":7', '"a":X,"id":7', '"note":"]}[{\\"","id":7,"params":X,"b":"c"'],
    )
    def test_the_id_is_read_beside_what_is_too_deep(self, order: str) -> None:
        for deep in ('{"a":' * 20_000 + "[]" + "}" * 20_000, "[" * 20_000 + "{}" + "]" * 20_000):
            text = '{"jsonrpc":"2.0","method":"m",' + order.replace("X", deep) + "}"
            assert refused(text.encode()).request_id == 7

    @given(values)
    def test_depth_is_what_a_parser_sees(self, value: Any) -> None:
        def depth(inner: Any) -> int:
            if isinstance(inner, dict):
                return 1 + max(map(depth, inner.values()), default=0)
            return 1 + max(map(depth, inner), default=0) if isinstance(inner, list) else 0

        for around in range(MAX_DEPTH - 8, MAX_DEPTH + 2):
            text = ("[" * around + dumps(value) + "]" * around).encode()
            assert too_deep(text) is (around + depth(value) > MAX_DEPTH)

    @pytest.mark.parametrize(
        "make",
        [
            lambda n: b"[" * n,
            lambda n: b"[" * n + b"]" * n,
            lambda n: b'{"params":' + b"[" * n + b"]" * n + b',"id":1}',
            lambda n: b'{"id":1,"params":' + b"[[]," * n,
            lambda n: b'{"id":1,"params":' + b"[[]," * n + b"0" + b"]" * n + b"}",
            lambda n: b'{"a":' * n,
            lambda n: b"]" * n + b"[" * n,
            lambda n: b'{"' + b'\\"' * n,
            lambda n: b'{"' + b"\\" * n,
            lambda n: b'"' * n,
            lambda n: b'{"a":"' + b'\\"[' * n + b'"}',
            lambda n: b'{"a":[' + b"NaN," * n + b"0]}",
            lambda n: b"{" + b'"a":1,' * n + b'"a":1}',
            lambda n: b'{"a":' + b"9" * n + b"}",
            lambda n: b'{"a":1e' + b"9" * n + b"}",
            lambda n: b'{"a":[\xff' + b"[" * n,
        ],
    )
    def test_no_body_takes_longer_than_its_length_explains(self, make: Callable[[int], bytes]) -> None:
        text = make(300_000)
        started = time.process_time()
        refused(text)
        # Measured: 10 to 250 ms. What is quadratic here takes minutes.
        assert time.process_time() - started < 5


class TestAnything:
    """Whatever comes, the answer is a message or a refusal."""

    @given(st.binary(max_size=200) | texts.map(lambda text: text.encode("utf-8", "surrogatepass")))
    def test_any_bytes_are_read_or_refused(self, text: bytes) -> None:
        got = outcome(text)
        assert isinstance(got, Message) or (got.kind in (PARSE, INVALID) and got.message.isprintable())

    @given(values, texts | st.integers())
    def test_any_value_beside_an_id_is_read_or_refused_with_that_id(self, value: Any, request_id: str | int) -> None:
        for member in ("jsonrpc", "method", "params", "result", "other"):
            got = outcome(dumps({"jsonrpc": "2.0", "id": request_id, "method": "m", member: value}).encode())
            assert exact(got.id if isinstance(got, Message) else got.request_id) == exact(request_id)

    @given(st.data(), values)
    def test_a_damaged_message_is_read_or_refused(self, data: st.DataObject, value: Any) -> None:
        text = bytearray(dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"x": value}}).encode())
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(text)))
            text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.sampled_from(_DAMAGE))
        got = outcome(bytes(text))
        assert isinstance(got, Message) or got.message.isprintable()


_DAMAGE = [
    b"",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"NaN",
    b"1e999",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b'"id":',
]


class TestWriting:
    """What is sent is compact JSON in UTF-8 that says exactly what was meant."""

    @given(values)
    def test_json_reads_back_exactly(self, value: Any) -> None:
        text = dumps(value)
        assert exact(json.loads(text.encode())) == exact(value)

    def test_it_is_compact_and_keeps_the_order(self) -> None:
        assert dumps({"b": [1, 2.5, None, True], "a": "ü"}) == '{"b":[1,2.5,null,true],"a":"ü"}'

    def test_a_lone_surrogate_is_escaped(self) -> None:
        assert dumps("a\ud800") == r'"a\ud800"'

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [{"a": math.nan}]])
    def test_what_json_does_not_have_is_no_value(self, value: Any) -> None:
        with pytest.raises(ValueError, match="JSON"):
            dumps(value)

    def test_an_unknown_type_is_refused(self) -> None:
        with pytest.raises(TypeError):
            dumps(object())

    def test_a_cycle_and_endless_nesting_are_refused(self) -> None:
        cycle: list[Any] = []
        cycle.append(cycle)
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        for value in (cycle, deep):
            with pytest.raises(ValueError, match=r"Circular|deeply"):
                dumps(value)

    def test_a_result_is_spliced_in_as_it_is(self) -> None:
        stored = Json('{ "a" : 1.0,"a":2 }')
        assert result_body(7, stored) == b'{"jsonrpc":"2.0","id":7,"result":{ "a" : 1.0,"a":2 }}'

    @pytest.mark.parametrize("request_id", ["", 'a"b', "\ud800", 0, 2**80])
    def test_a_response_carries_the_id_exactly(self, request_id: str | int) -> None:
        for text in (result_body(request_id, Json("{}")), error_body(request_id, -32602, "No")):
            assert exact(json.loads(text)["id"]) == exact(request_id)

    def test_an_error_has_data_only_where_there_is_some(self) -> None:
        assert json.loads(error_body(1, -1, "No"))["error"] == {"code": -1, "message": "No"}
        assert json.loads(error_body(1, -1, "No", {"a": []}))["error"]["data"] == {"a": []}

    def test_an_error_without_id_has_no_such_member(self) -> None:
        assert error_body(None, -32700, "No") == b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"No"}}'


class TestPrintable:
    """Other people's text in our messages."""

    def test_ordinary_text_stays_as_it_is(self) -> None:
        assert printable("tools/call für 😀") == "tools/call für 😀"

    @given(texts)
    def test_it_is_short_and_prints(self, text: str) -> None:
        assert len(printable(text)) <= 101
        assert printable(text).isprintable()

    def test_what_is_cut_shows_it(self) -> None:
        assert printable("x" * 101) == "x" * 100 + "…"
