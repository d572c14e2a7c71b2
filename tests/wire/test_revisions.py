"""Which revision a request speaks, what must be there for it, and what each refusal is numbered."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import ErrorKind, Refusal
from app.wire.envelope import Message
from app.wire.headers import Head, decode_header
from app.wire.revisions import (
    LEGACY,
    SUPPORTED,
    Context,
    Revision,
    code,
    error_status,
    http_status,
    missing_capability,
    missing_tasks_capability,
    read_context,
    revision_of,
)

V = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
TASKS = "io.modelcontextprotocol/tasks"
PUBLISHED, DRAFT = "2026-07-28", "DRAFT-2026-v1"
MISMATCH, VERSION, PARAMS = ErrorKind.HEADER_MISMATCH, ErrorKind.UNSUPPORTED_VERSION, ErrorKind.INVALID_PARAMS

META = {V: PUBLISHED, CAPABILITIES: {}}
HEADERS = {"MCP-Protocol-Version": PUBLISHED, "Mcp-Method": "tools/call", "Mcp-Name": "greet"}


def message(meta: Any = None, method: str = "tools/call", request_id: int | None = 1, **params: Any) -> Message:
    params = params or {"name": "greet"}
    return Message(request_id, method, params if meta is None else params | {"_meta": meta})


def read(message: Message, headers: Mapping[str, str] | None = None, **options: bool) -> Context:
    return read_context(message, Head((headers or {}).items()), **options)


def refused(message: Message, headers: Mapping[str, str] | None = None, **options: bool) -> Refusal:
    with pytest.raises(Refusal) as caught:
        read(message, headers, **options)
    return caught.value


def outcome(message: Message, headers: Mapping[str, str]) -> Context | Refusal:
    """What came of a message. Anything else that is raised fails the test."""
    try:
        return read(message, headers)
    except Refusal as refusal:
        return refusal


def without(whole: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in whole.items() if key != name}


class TestPublished:
    """A request that declares 2026-07-28 is held to it."""

    def test_a_complete_request_is_served(self) -> None:
        context = read(message(META), HEADERS)
        assert (context.revision, context.declared) == (Revision.V2026_07_28, PUBLISHED)

    def test_header_names_are_found_in_any_case(self) -> None:
        read(message(META), {name.upper(): value for name, value in HEADERS.items()})

    def test_space_around_a_value_does_not_count(self) -> None:
        read(message(META), {name: f" \t{value} " for name, value in HEADERS.items()})

    @pytest.mark.parametrize("name", HEADERS)
    def test_each_header_is_required(self, name: str) -> None:
        refusal = refused(message(META), without(HEADERS, name))
        assert refusal.kind is MISMATCH
        assert name in refusal.message

    @pytest.mark.parametrize("key", META)
    def test_each_field_is_required(self, key: str) -> None:
        refusal = refused(message(without(META, key)), HEADERS)
        assert refusal.kind is PARAMS
        assert key in refusal.message

    def test_a_request_without_meta_lacks_the_version(self) -> None:
        assert refused(message(), HEADERS).kind is PARAMS

    def test_client_info_is_not_required(self) -> None:
        assert read(message(META), HEADERS).client_info is None

    def test_methods_without_a_name_need_none(self) -> None:
        read(message(META, "tools/list"), {"MCP-Protocol-Version": PUBLISHED, "Mcp-Method": "tools/list"})

    @pytest.mark.parametrize("method", ["tasks/list", "tasks/result"])
    def test_methods_that_do_not_exist_need_no_name(self, method: str) -> None:
        read(message(META, method, taskId="t"), {"MCP-Protocol-Version": PUBLISHED, "Mcp-Method": method})

    def test_what_the_body_lacks_is_left_to_the_method(self) -> None:
        read(message(META, other=1), without(HEADERS, "Mcp-Name"))

    @pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
    def test_a_task_may_go_unnamed_unless_the_setting_is_off(self, method: str) -> None:
        headers = {"MCP-Protocol-Version": PUBLISHED, "Mcp-Method": method}
        request = message(META, method, taskId="t")
        read(request, headers)
        assert refused(request, headers, lenient_task_names=False).kind is MISMATCH
        read(request, headers | {"Mcp-Name": "t"}, lenient_task_names=False)

    def test_a_notification_needs_neither_headers_nor_fields(self) -> None:
        read(message({V: PUBLISHED}, "notifications/x", request_id=None))


class TestDraft:
    """A request that declares the draft, or nothing, may leave things out."""

    @pytest.mark.parametrize("meta", [None, {}, {CAPABILITIES: {}}])
    def test_a_request_that_declares_nothing_is_served_as_the_draft(self, meta: Any) -> None:
        context = read(message(meta))
        assert (context.revision, context.declared, context.capabilities) == (Revision.DRAFT, None, {})

    def test_either_place_declares_the_draft(self) -> None:
        for request, headers in ((message({V: DRAFT}), {}), (message(), {"MCP-Protocol-Version": DRAFT})):
            context = read(request, headers)
            assert (context.revision, context.declared) == (Revision.DRAFT, DRAFT)


@pytest.mark.parametrize("version", LEGACY)
class TestOlder:
    """A request that declares an older revision, as its header alone can, says nothing of its client."""

    def test_nothing_else_is_required_of_it(self, version: str) -> None:
        context = read(message(), {"MCP-Protocol-Version": version})
        assert (context.revision, context.declared, context.legacy) == (Revision(version), version, True)

    def test_what_newer_revisions_put_into_meta_is_passed_over(self, version: str) -> None:
        tasks: dict[str, Any] = {"extensions": {TASKS: {}}}
        for meta in ({CAPABILITIES: tasks, CLIENT: {"name": "x", "version": "1"}}, {CAPABILITIES: 7, CLIENT: "x"}):
            context = read(message(meta), {"MCP-Protocol-Version": version})
            assert (context.capabilities, context.client_info, context.declares_tasks) == ({}, None, False)

    def test_its_progress_token_and_its_trace_are_read(self, version: str) -> None:
        meta = {"progressToken": 7, "traceparent": "00-1-2-01"}
        context = read(message(meta), {"MCP-Protocol-Version": version})
        assert (context.progress_token, context.trace) == (7, {"traceparent": "00-1-2-01"})

    def test_meta_may_repeat_the_version_but_not_declare_it(self, version: str) -> None:
        request = message({V: version})
        assert read(request, {"MCP-Protocol-Version": version}).legacy
        refusal = refused(request)
        assert (refusal.kind, refusal.data) == (VERSION, {"supported": [PUBLISHED, DRAFT], "requested": version})

    def test_it_is_not_offered(self, version: str) -> None:
        assert version not in SUPPORTED


def test_a_request_of_today_is_not_an_older_one() -> None:
    assert not read(message(META), HEADERS).legacy
    assert not read(message({V: DRAFT})).legacy
    assert not read(message()).legacy


@pytest.mark.parametrize("version", [PUBLISHED, DRAFT, None, *LEGACY])
class TestMatching:
    """A header that is there must say what the body says, whatever the revision."""

    def given(self, version: str | None) -> tuple[dict[str, Any], dict[str, str]]:
        if version is None:
            return {}, without(HEADERS, "MCP-Protocol-Version")
        meta = {} if version in LEGACY else META | {V: version}
        return meta, HEADERS | {"MCP-Protocol-Version": version}

    @pytest.mark.requirement("R56")
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("Mcp-Method", "tools/list"),
            ("Mcp-Method", "TOOLS/CALL"),
            ("Mcp-Method", "=?base64?dG9vbHMvY2FsbA==?="),
            ("Mcp-Method", ""),
            ("Mcp-Name", "Greet"),
            ("Mcp-Name", ""),
            ("Mcp-Name", "=?base64?Z3JlZXQ?="),
            ("Mcp-Name", "=?base64?Z3Jl!ZXQ=?="),
            ("Mcp-Name", "=?base64?/w==?="),
            ("Mcp-Name", "=?base64?Z3JlZXQx?="),
        ],
    )
    def test_a_header_that_says_something_else_is_refused(self, version: str | None, name: str, value: str) -> None:
        meta, headers = self.given(version)
        refusal = refused(message(meta), headers | {name: value})
        assert refusal.kind is MISMATCH
        assert name in refusal.message

    def test_a_name_in_base64_is_decoded(self, version: str | None) -> None:
        meta, headers = self.given(version)
        for name in ("greet", "Grüße 世界", " padded ", "a\nb", "=?base64?x?=", ""):
            encoded = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
            read(message(meta, name=name), headers | {"Mcp-Name": encoded})

    def test_a_name_that_a_header_cannot_hold_is_refused_unencoded(self, version: str | None) -> None:
        meta, headers = self.given(version)
        for name in ("Grüße", "=?base64?x?="):
            assert refused(message(meta, name=name), headers | {"Mcp-Name": name}).kind is MISMATCH

    def test_a_name_for_a_body_without_one_is_refused(self, version: str | None) -> None:
        meta, headers = self.given(version)
        bodies: list[dict[str, Any]] = [{"name": 7}, {"other": 1}]
        for params in bodies:
            assert refused(message(meta, **params), headers).kind is MISMATCH

    def test_a_header_cannot_hide_behind_another(self, version: str | None) -> None:
        meta, headers = self.given(version)
        for name in headers:
            doubled = Head([*headers.items(), (name, "other")])
            with pytest.raises(Refusal) as caught:
                read_context(message(meta), doubled)
            assert caught.value.kind in (MISMATCH, VERSION)

    @pytest.mark.parametrize("noise", ["x" * 5000, "\u202e" * 300, "\x1b[31m", "a\r\nb"])
    def test_messages_stay_short_and_printable(self, version: str | None, noise: str) -> None:
        meta, headers = self.given(version)
        cases = [
            (message(meta), headers | {"Mcp-Name": noise}),
            (message(meta), headers | {"Mcp-Method": noise}),
            (message(meta, name=noise), headers),
            (message(meta, method=noise, name=noise), headers),
        ]
        for request, sent in cases:
            refusal = refused(request, sent)
            assert len(refusal.message) < 400
            assert refusal.message.isprintable()


class TestVersions:
    """What becomes of versions that are not served, or that contradict each other."""

    @pytest.mark.parametrize("version", ["1999-01-01", "v999.0.0", "2024-11-05", "draft", ""])
    def test_an_unknown_one_is_refused_with_what_is_served(self, version: str) -> None:
        header = {"MCP-Protocol-Version": version}
        for request, headers in ((message({V: version}), header), (message({V: version}), {}), (message(), header)):
            refusal = refused(request, headers)
            assert refusal.kind is VERSION
            assert refusal.data == {"supported": list(SUPPORTED), "requested": version}
            assert code(refusal.kind, revision_of(request, Head(headers.items()))) == -32022

    def test_what_is_echoed_of_it_is_short_and_printable(self) -> None:
        for version in ("x" * 5000, "\x1b[31m", "\ud800"):
            requested = refused(message({V: version})).data["requested"]
            assert len(requested) <= 101
            assert requested.isprintable()

    @pytest.mark.parametrize(
        ("in_header", "in_body", "number"),
        [
            (PUBLISHED, DRAFT, -32020),
            (DRAFT, PUBLISHED, -32020),
            (PUBLISHED, "1999-01-01", -32020),
            ("1999-01-01", PUBLISHED, -32020),
            (DRAFT, "1999-01-01", -32001),
            ("1999-01-01", DRAFT, -32001),
            ("1999-01-01", "1999-01-02", -32020),
            ("2025-11-25", PUBLISHED, -32020),
            ("2025-11-25", DRAFT, -32001),
            (PUBLISHED, "2025-11-25", -32020),
            ("2025-11-25", "2025-06-18", -32020),
            ("2025-11-25", "1999-01-01", -32020),
        ],
    )
    def test_two_different_ones_are_a_mismatch(self, in_header: str, in_body: str, number: int) -> None:
        request, headers = message({V: in_body}), {"MCP-Protocol-Version": in_header}
        refusal = refused(request, headers)
        assert refusal.kind is MISMATCH
        assert code(refusal.kind, revision_of(request, Head(headers.items()))) == number

    @pytest.mark.parametrize(
        ("request_", "headers", "revision"),
        [
            (None, {}, Revision.DRAFT),
            (None, {"MCP-Protocol-Version": PUBLISHED}, Revision.V2026_07_28),
            (None, {"MCP-Protocol-Version": "1999-01-01"}, None),
            (message({V: PUBLISHED}), {}, Revision.V2026_07_28),
            (message({V: DRAFT}), {}, Revision.DRAFT),
            (message({V: ["x"]}), {}, Revision.DRAFT),
            (message({V: {}}), {"MCP-Protocol-Version": PUBLISHED}, Revision.V2026_07_28),
            (message("no object"), {}, Revision.DRAFT),
            (None, {"MCP-Protocol-Version": "2025-06-18"}, Revision.V2025_06_18),
            (message({V: PUBLISHED}), {"MCP-Protocol-Version": "2025-06-18"}, Revision.V2026_07_28),
            (message({V: "2025-06-18"}), {}, None),
        ],
    )
    def test_the_revision_of_a_refused_request_is_found_without_fail(
        self, request_: Message | None, headers: dict[str, str], revision: Revision | None
    ) -> None:
        assert revision_of(request_, Head(headers.items())) is revision


class TestMeta:
    """What a request says of itself, and what is wrong with it by name."""

    @pytest.mark.parametrize(
        ("key", "values"),
        [
            (V, [None, 7, True, ["2026-07-28"], {}]),
            (CAPABILITIES, [None, 7, "x", [], True]),
            (CLIENT, [None, "x", [], {}, {"name": "x"}, {"name": "x", "version": 1}, {"name": None, "version": "1"}]),
            ("progressToken", [None, 1.5, True, [], {}]),
            ("traceparent", [None, 7, [], {}]),
            ("tracestate", [None, 7]),
            ("baggage", [None, {}]),
        ],
    )
    @pytest.mark.parametrize("version", [PUBLISHED, DRAFT])
    def test_a_field_of_the_wrong_type_is_named(self, version: str, key: str, values: list[Any]) -> None:
        for value in values:
            headers = HEADERS | {"MCP-Protocol-Version": version}
            refusal = refused(message(META | {V: version} | {key: value}), headers)
            assert refusal.kind is PARAMS
            assert f"params._meta['{key}']" in refusal.message

    @pytest.mark.parametrize("meta", [7, "x", [], True])
    def test_meta_itself_must_be_an_object(self, meta: Any) -> None:
        refusal = refused(message(meta), HEADERS)
        assert (refusal.kind, refusal.message) == (PARAMS, "Invalid params: params._meta must be an object")

    def test_meta_that_is_null_is_no_object(self) -> None:
        assert refused(Message(1, "ping", {"_meta": None})).kind is PARAMS

    @pytest.mark.parametrize("name", ["extensions", "elicitation", "sampling", "roots"])
    def test_a_capability_must_be_an_object(self, name: str) -> None:
        values: list[Any] = [None, True, [], "x"]
        for value in values:
            refusal = refused(message({CAPABILITIES: {name: value}}))
            assert refusal.kind is PARAMS
            assert name in refusal.message

    @pytest.mark.parametrize("token", ["", "t", 0, 7, 2**70])
    def test_a_progress_token_is_kept(self, token: str | int) -> None:
        assert read(message({"progressToken": token})).progress_token == token

    def test_the_client_and_its_trace_are_kept(self) -> None:
        client = {"name": "x", "version": "1", "title": "X"}
        context = read(message({CLIENT: client, "traceparent": "00-1-2-01", "baggage": "a=b", "other": 7}))
        assert context.client_info == client
        assert context.trace == {"traceparent": "00-1-2-01", "baggage": "a=b"}

    @pytest.mark.parametrize(
        ("capabilities", "declares"),
        [
            ({"extensions": {TASKS: {}}}, True),
            ({"extensions": {TASKS: {"some": "setting"}}}, True),
            ({"extensions": {}}, False),
            ({"extensions": {"com.example/tasks": {}}}, False),
            ({"tasks": {}}, False),
            ({TASKS: {}}, False),
            ({}, False),
        ],
    )
    def test_only_the_extension_declares_tasks(self, capabilities: dict[str, Any], declares: bool) -> None:
        assert read(message({CAPABILITIES: capabilities})).declares_tasks is declares

    @pytest.mark.parametrize("value", [None, True, [], "x"])
    def test_an_extension_that_is_no_object_is_refused(self, value: Any) -> None:
        assert refused(message({CAPABILITIES: {"extensions": {TASKS: value}}})).kind is PARAMS


class TestNumbers:
    """The table of the two revisions."""

    @pytest.mark.parametrize(
        ("kind", "published", "draft", "status"),
        [
            (ErrorKind.PARSE, -32700, -32700, 400),
            (ErrorKind.INVALID_REQUEST, -32600, -32600, 400),
            (ErrorKind.METHOD_NOT_FOUND, -32601, -32601, 404),
            (ErrorKind.INVALID_PARAMS, -32602, -32602, 400),
            (ErrorKind.INTERNAL, -32603, -32603, 500),
            (ErrorKind.UNAVAILABLE, -32603, -32603, 503),
            (ErrorKind.HEADER_MISMATCH, -32020, -32001, 400),
            (ErrorKind.MISSING_CAPABILITY, -32021, -32003, 400),
            (ErrorKind.UNSUPPORTED_VERSION, -32022, -32004, 400),
        ],
    )
    def test_each_refusal_has_its_number_and_status(
        self, kind: ErrorKind, published: int, draft: int, status: int
    ) -> None:
        assert {code(kind, revision) for revision in (None, Revision.V2026_07_28, *map(Revision, LEGACY))} == {
            published
        }
        assert code(kind, Revision.DRAFT) == draft
        assert http_status(kind) == status

    def test_every_kind_of_refusal_has_a_number(self) -> None:
        assert all(code(kind, revision) for kind in ErrorKind for revision in (None, *Revision))

    @pytest.mark.parametrize(
        ("number", "published", "draft"),
        [
            (-32602, 400, 400),
            (-32601, 404, 404),
            (-32603, 500, 500),
            (-32021, 400, 200),
            (-32003, 200, 400),
            (4711, 200, 200),
            (-32050, 200, 200),
        ],
    )
    def test_an_error_of_a_tool_has_the_status_of_the_refusal_with_its_number(
        self, number: int, published: int, draft: int
    ) -> None:
        assert error_status(number, Revision.V2026_07_28) == error_status(number, None) == published
        assert error_status(number, Revision.DRAFT) == draft

    def test_the_missing_capability_is_named_as_a_client_would_declare_it(self) -> None:
        refusal = missing_tasks_capability()
        assert refusal.kind is ErrorKind.MISSING_CAPABILITY
        assert refusal.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        assert "sampling" in missing_capability({"sampling": {}}).message


class TestParameters:
    """The headers that mirror arguments."""

    def test_they_are_kept_as_they_were_sent_by_name_in_lower_case(self) -> None:
        sent = {"Mcp-Param-Region": " eu ", "MCP-PARAM-X-Y": "=?base64?IA==?=", "Mcp-Name": "greet", "Mcp-Param": "no"}
        assert read(message(), sent).parameters == {"region": "eu", "x-y": "=?base64?IA==?="}

    def test_one_that_is_repeated_has_all_its_values(self) -> None:
        doubled = Head([("Mcp-Param-Region", "eu"), ("mcp-param-region", "us")])
        assert read_context(message(), doubled).parameters == {"region": "eu, us"}

    def test_a_request_without_them_has_none(self) -> None:
        assert read(message(META), HEADERS).parameters == {}


class TestHeaderValues:
    """The encoding of values in headers."""

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("us-west1", "us-west1"),
            ("=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"),
            ("=?base64?IHBhZGRlZCA=?=", " padded "),
            ("=?base64?bGluZTEKbGluZTI=?=", "line1\nline2"),
            ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
            ("=?base64??=", ""),
            ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
            ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
            ("SGVsbG8=", "SGVsbG8="),
            ("=?base64?=", "=?base64?="),
            ("a\tb", "a\tb"),
        ],
    )
    def test_a_value_stands_for_its_text(self, value: str, text: str) -> None:
        assert decode_header(value) == text

    @pytest.mark.parametrize(
        "value",
        [
            "=?base64?SGVsbG8?=",
            "=?base64?SGVs!!!bG8=?=",
            "=?base64?SGVsbG8= ?=",
            "=?base64?/w==?=",
            "ü",
            "\x7f",
            "a\nb",
        ],
    )
    def test_a_broken_value_is_refused(self, value: str) -> None:
        with pytest.raises(ValueError, match="which"):
            decode_header(value)

    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def test_base64_carries_any_text(self, text: str) -> None:
        assert decode_header(f"=?base64?{base64.b64encode(text.encode()).decode()}?=") == text


class TestAnything:
    """Whatever a message and its headers hold, they are read or refused."""

    scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
    values = st.recursive(
        scalars, lambda v: st.lists(v, max_size=2) | st.dictionaries(st.text(max_size=4), v, max_size=2), max_leaves=4
    )
    metas = values | st.dictionaries(
        st.sampled_from([V, CAPABILITIES, CLIENT, "progressToken", "traceparent", "extensions"]),
        values | st.sampled_from([PUBLISHED, DRAFT, "2025-11-25", {"extensions": {TASKS: {}}}]),
    )
    methods = st.sampled_from(["tools/call", "tasks/get", "tools/list"]) | st.text(max_size=8)
    headers = st.dictionaries(
        st.sampled_from(["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-X"]),
        st.sampled_from([PUBLISHED, DRAFT, "2025-11-25", "tools/call", "=?base64?x?="]) | st.text(max_size=8),
    )

    @given(meta=metas, method=methods, name=values, headers=headers, request_id=st.none() | st.integers())
    def test_it_is_read_or_refused(
        self, meta: Any, method: str, name: Any, headers: dict[str, str], request_id: int | None
    ) -> None:
        request = Message(request_id, method, {"name": name, "taskId": name, "_meta": meta})
        got = outcome(request, headers)
        if isinstance(got, Context):
            assert isinstance(got.declares_tasks, bool)
            assert revision_of(request, Head(headers.items())) is got.revision
        else:
            assert got.kind in (MISMATCH, VERSION, PARAMS)
            assert got.message.isprintable()
            assert code(got.kind, revision_of(request, Head(headers.items()))) < 0
