"""POST /mcp (core, "Streamable HTTP"): what HTTP itself decides, and how errors are sent."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest
from structlog.testing import capture_logs

from app.domain.task import new_task_id
from app.errors import ProtocolError
from app.tools.registry import Registry, tool
from app.wire.revisions import LEGACY
from tests.support.cable import cable_to
from tests.support.rpc import DRAFT, PUBLISHED, Client
from tests.support.service import HOST, Service, serving

PING = b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}'
NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'


# -- the envelope -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_id", [0, -1, 7, 2**53, 2**64, "", "a", "1", "\U0001f600", 'quo"te', "\x00", "\ud800"])
async def test_the_id_of_the_request_comes_back_as_it_was(service: Service, request_id: str | int) -> None:
    for method in ("server/discover", "no/such/method", "tasks/get"):
        message = (await service.client.rpc(method, request_id=request_id)).message
        assert message["id"] == request_id
        assert type(message["id"]) is type(request_id)


@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"server/discover"}]', -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"server/discover"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"server/discover"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":"r","method":7}', -32600, "r"),
        (b'{"jsonrpc":"1.0","id":"r","method":"server/discover"}', -32600, "r"),
        (b'{"jsonrpc":"2.0","id":"r","method":"server/discover","params":[]}', -32600, "r"),
        (b'{"jsonrpc":"2.0","id":"r","method":"server/discover","params":{"_meta":7}}', -32602, "r"),
        (b'{"jsonrpc":"2.0","id":"r","result":{}}', -32600, "r"),
        (
            b'{"jsonrpc":"2.0","id":"r","method":"tools/call","params":{"x":' + b"[" * 100 + b"]" * 100 + b"}}",
            -32600,
            "r",
        ),
    ],
)
async def test_what_is_no_request_is_refused_with_its_id_where_it_has_one(
    service: Service, body: bytes, code: int, request_id: str | None
) -> None:
    reply = await service.client.post(body)
    assert (reply.status, reply.error["code"]) == (400, code)
    assert reply.message.get("id") == request_id


@pytest.mark.requirement("R58")
@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED])
@pytest.mark.parametrize(
    "method", ["tasks/list", "tasks/result", "tasks/", "tasks/Get", "resources/subscribe", "", "x" * 5000]
)
async def test_a_method_that_is_not_served_is_not_found(service: Service, method: str, version: str | None) -> None:
    reply = await service.client.with_(version=version).rpc(method)
    assert (reply.status, reply.error["code"]) == (404, -32601)


async def test_every_reply_is_one_json_object(service: Service) -> None:
    for reply in (await service.client.rpc("server/discover"), await service.client.rpc("no/such/method")):
        assert reply.headers["Content-Type"].partition(";")[0] == "application/json"


# -- notifications ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/initialized", "notifications/unheard/of"])
async def test_a_notification_is_accepted_without_a_body(service: Service, method: str) -> None:
    reply = await service.client.post(json.dumps({"jsonrpc": "2.0", "method": method}).encode())
    assert (reply.status, reply.body) == (202, b"")


@pytest.mark.requirement("R30")
async def test_a_notification_never_cancels_a_task(service: Service) -> None:
    task_id = await service.start_task()
    params = {"requestId": 1, "taskId": task_id}
    body = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).encode()
    assert (await service.client.post(body)).status == 202
    assert (await service.read(task_id))["status"] == "working"


async def test_a_request_that_lacks_its_id_is_not_taken_for_a_notification(service: Service) -> None:
    body = b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"job"}}'
    reply = await service.client.post(body)
    assert (reply.status, reply.error["code"]) == (400, -32600)
    assert await service.count_tasks() == 0


@pytest.mark.parametrize(
    ("headers", "number"),
    [
        ({"MCP-Protocol-Version": "1900-01-01"}, -32022),
        ({"MCP-Protocol-Version": PUBLISHED, "Mcp-Method": "notifications/initialized"}, -32020),
        ({"Mcp-Method": "notifications/initialized"}, -32001),
    ],
)
async def test_a_notification_that_contradicts_its_headers_is_refused(
    service: Service, headers: dict[str, str], number: int
) -> None:
    reply = await service.client.post(NOTIFICATION, headers)
    assert (reply.status, reply.error["code"]) == (400, number)


@pytest.mark.parametrize("version", [None, DRAFT, PUBLISHED, *LEGACY])
async def test_a_notification_of_every_revision_is_accepted(service: Service, version: str | None) -> None:
    headers = {"MCP-Protocol-Version": version} if version else {}
    assert (await service.client.post(NOTIFICATION, headers)).status == 202


# -- what HTTP has statuses for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_only_post_is_allowed(service: Service, method: str) -> None:
    async with service.client.session.request(method, service.client.url) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize("sent", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json", ""])
async def test_another_content_type_is_refused(service: Service, sent: str) -> None:
    assert (await service.client.post(PING, {"Content-Type": sent}, unread=True)).status == 415


async def test_no_content_type_is_refused(service: Service) -> None:
    url = service.client.url
    async with service.client.session.post(url, data=PING, skip_auto_headers=["Content-Type"]) as response:
        assert response.status == 415


@pytest.mark.parametrize(
    "sent", ["application/json", "application/json; charset=utf-8", 'Application/JSON;Charset="UTF-8"']
)
async def test_json_by_any_spelling_is_taken(service: Service, sent: str) -> None:
    assert (await service.client.post(PING, {"Content-Type": sent})).status == 200


@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-16", '"us-ascii"', "x" * 1000])
async def test_another_charset_is_refused(service: Service, charset: str) -> None:
    sent = f"application/json; charset={charset}"
    reply = await service.client.post(PING, {"Content-Type": sent}, unread=True)
    assert (reply.status, reply.error["message"]) == (415, "Unsupported media type: JSON is sent in UTF-8")


async def test_a_body_at_the_limit_is_read_and_one_beyond_it_is_not(db_url: str) -> None:
    async with serving(db_url, max_body=1000) as service:
        assert (await service.client.post(PING.ljust(1000))).status == 200
        reply = await service.client.post(PING.ljust(1001), unread=True)
        assert (reply.status, reply.error["code"]) == (413, -32600)
        assert "1000 bytes" in reply.error["message"]
        assert (await service.client.post(PING)).status == 200


async def test_a_body_that_does_not_say_how_long_it_is_is_held_to_the_limit_too(db_url: str) -> None:
    async def chunks() -> Any:
        for _ in range(100):
            yield b" " * 100

    async with serving(db_url, max_body=1000) as service:
        headers = {"Content-Type": "application/json"}
        async with service.client.session.post(service.client.url, data=chunks(), headers=headers) as response:
            assert response.status == 413


async def test_a_compressed_body_is_refused_unread(db_url: str) -> None:
    async with serving(db_url, max_body=100_000) as service:
        for body in (gzip.compress(PING), gzip.compress(b" " * 50_000_000), b"no gzip at all"):
            assert (await _post(service.client, body, {"Content-Encoding": "gzip"})) == 415
        assert (await _post(service.client, PING, {"Content-Encoding": "identity"})) == 200


async def _post(client: Client, body: bytes, headers: dict[str, str]) -> int:
    sent = {"Content-Type": "application/json"} | headers
    async with client.session.post(client.url, data=body, headers=sent) as response:
        return response.status


async def test_ten_megabytes_are_refused_by_default(service: Service) -> None:
    reply = await service.client.post(PING.ljust(10_000_000), unread=True)
    assert reply.status == 413


# -- errors -----------------------------------------------------------------------------------------------------------


async def test_an_unexpected_fault_is_an_internal_error_that_tells_nothing(service: Service) -> None:
    await service.connection.execute("ALTER TABLE perdure.tasks RENAME TO secret_name")
    with capture_logs() as logs:
        reply = await service.client.rpc("tasks/get", {"taskId": str(new_task_id())}, request_id="r")
    assert reply.refusal == (500, -32603, "Internal error")
    assert reply.message["id"] == "r"
    [failed] = [line for line in logs if line["event"] == "a request failed"]
    assert isinstance(failed["exc_info"], asyncpg.UndefinedTableError)


async def test_a_database_that_stays_away_is_an_error_that_says_to_try_again(db_url: str) -> None:
    async with cable_to(db_url) as cable, serving(cable.url, patience_seconds=0.2) as service:
        task_id = await service.start_task()
        await cable.pull_out()
        reply = await service.client.rpc("tasks/get", {"taskId": task_id}, request_id=9)
        assert reply.refusal == (503, -32603, "The task store cannot be reached. Try again later.")
        assert reply.message["id"] == 9
        listed = await service.client.rpc("tools/list")
        assert {tool["name"] for tool in listed.result["tools"]} > {"job", "greet"}
        assert (await service.client.call("greet", name="Ada")).status == 200
        await cable.plug_in()
        assert (await service.read(task_id))["status"] == "working"


async def test_a_database_that_is_soon_back_is_only_a_late_answer(db_url: str) -> None:
    async with cable_to(db_url) as cable, serving(cable.url) as service:
        task_id = await service.start_task()
        await cable.pull_out()
        late = asyncio.create_task(service.read(task_id))
        assert (await service.client.rpc("server/discover")).status == 200
        await cable.plug_in()
        assert (await late)["status"] == "working"


@pytest.mark.parametrize("version", LEGACY)
async def test_an_older_client_gets_an_error_with_the_status_of_success_if_its_request_could_be_read(
    service: Service, version: str
) -> None:
    headers = {"MCP-Protocol-Version": version}
    for sent, number in (
        (b'{"jsonrpc":"2.0","id":"r","method":"no/such/method"}', -32601),
        (b'{"jsonrpc":"2.0","id":"r","method":"tools/call"}', -32602),
        (b'{"jsonrpc":"2.0","id":"r","method":"tools/call","params":{"name":"crash"}}', -32603),
        (b'{"jsonrpc":"2.0","id":"r","method":7}', -32600),
    ):
        reply = await service.client.post(sent, headers)
        assert (reply.status, reply.error["code"], reply.message["id"]) == (200, number, "r")
    for unread in (b"{", b"[]", b'{"jsonrpc":"2.0","id":null,"method":"ping"}'):
        reply = await service.client.post(unread, headers)
        assert (reply.status, reply.message.get("id")) == (400, None)


@pytest.mark.parametrize(
    ("version", "number", "status"),
    [
        (PUBLISHED, -32602, 400),
        (PUBLISHED, -32601, 404),
        (PUBLISHED, -32603, 500),
        (PUBLISHED, -32001, 200),
        (PUBLISHED, 4711, 200),
        (DRAFT, -32001, 400),
        (LEGACY[0], -32602, 200),
    ],
)
async def test_a_tools_own_error_has_the_status_of_the_protocols_error_with_its_number(
    db_url: str, version: str, number: int, status: int
) -> None:
    @tool(task="never")
    async def fail() -> str:
        """Fail as told."""
        raise ProtocolError(number, "It failed")

    async with serving(db_url, Registry([fail])) as service:
        body, headers = service.client.with_(version=version).request("tools/call", {"name": "fail"})
        if version in LEGACY:
            body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fail"}}'
        async with service.client.session.post(
            service.client.url, data=body, headers=headers | {"Content-Type": "application/json"}
        ) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (status, number)


# -- headers and revisions --------------------------------------------------------------------------------------------


@pytest.mark.requirement("R56")
@pytest.mark.parametrize(("version", "number"), [(None, -32001), (DRAFT, -32001), (PUBLISHED, -32020)])
async def test_a_header_that_contradicts_the_body_is_refused_with_the_number_of_the_revision(
    service: Service, version: str | None, number: int
) -> None:
    client = service.client.with_(version=version)
    task_id = await service.start_task()
    for wrong in ({"Mcp-Method": "tasks/cancel"}, {"Mcp-Name": str(UUID(int=0))}):
        body, headers = client.request("tasks/get", {"taskId": task_id})
        reply = await client.post(body, headers | wrong)
        assert (reply.status, reply.error["code"]) == (400, number)


async def test_a_header_that_is_sent_twice_counts_twice(service: Service) -> None:
    client = service.client.with_(version=PUBLISHED)
    body, headers = client.request("server/discover", {})
    doubled = [*headers.items(), ("Content-Type", "application/json"), ("Mcp-Method", "tools/list")]
    async with client.session.post(client.url, data=body, headers=doubled) as response:
        assert (await response.json())["error"]["code"] == -32020


@pytest.mark.requirement("R56")
@pytest.mark.parametrize("lenient", [True, False])
async def test_task_methods_may_lack_their_name_header_unless_told_otherwise(db_url: str, lenient: bool) -> None:
    async with serving(db_url, lenient_task_names=lenient) as service:
        client = service.client.with_(version=PUBLISHED)
        body, headers = client.request("tasks/get", {"taskId": await service.start_task()})
        del headers["Mcp-Name"]
        assert (await client.post(body, headers)).status == (200 if lenient else 400)


async def test_a_version_that_is_not_served_is_refused_with_those_that_are(service: Service) -> None:
    reply = await service.client.with_(version="1900-01-01").rpc("server/discover")
    assert (reply.status, reply.error["code"]) == (400, -32022)
    assert reply.error["data"] == {"supported": [PUBLISHED, DRAFT], "requested": "1900-01-01"}


async def test_session_headers_of_older_revisions_are_ignored(service: Service) -> None:
    reply = await service.client.post(PING, {"Mcp-Session-Id": "s", "Last-Event-ID": "7"})
    assert reply.status == 200
    assert "Mcp-Session-Id" not in reply.headers


# -- the log ----------------------------------------------------------------------------------------------------------


async def test_each_request_is_one_line_in_the_log_that_holds_no_secret(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as logs, caplog.at_level(logging.DEBUG, "app.http.server"):
        task_id = await service.start_task("job", note="secret-argument")
        await service.client.rpc("tasks/get", {"taskId": task_id})
        await service.client.rpc("no/such/method\n")
        await service.client.post(b"{")
        await service.client.session.get(service.client.url)
    lines = [line for line in logs if line["event"] == "request"]
    assert [line["log_level"] for line in lines] == ["info"] * 5
    assert [(line["event"], line["method"], line["status"]) for line in lines] == [
        ("request", "tools/call", 200),
        ("request", "tasks/get", 200),
        ("request", "no/such/method\\n", 404),
        ("request", "POST", 400),
        ("request", "GET", 405),
    ]
    assert all(line["ms"] >= 0 for line in lines)
    assert task_id not in str(logs)
    assert "secret-argument" not in str(logs)


# -- connections ------------------------------------------------------------------------------------------------------


async def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody(service: Service) -> None:
    with capture_logs() as logs:
        async with _connected(service, b"Content-Length: 99\r\n\r\n{"):
            pass
        assert (await service.client.post(PING)).status == 200
    assert [line for line in logs if line["log_level"] in ("warning", "error")] == []


@pytest.mark.parametrize("rest", [b"Content-Length: 9\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"])
async def test_a_body_that_does_not_come_is_not_waited_for_for_ever(db_url: str, rest: bytes) -> None:
    async with serving(db_url, body_seconds=0.1) as service, _connected(service, rest) as reader:
        assert (await asyncio.wait_for(reader.readline(), 10)).split()[1] == b"408"


async def test_a_body_that_says_it_will_be_too_large_is_not_waited_for(service: Service) -> None:
    async with _connected(service, b"Content-Length: 99999999\r\n\r\n{") as reader:
        assert (await asyncio.wait_for(reader.readline(), 10)).split()[1] == b"413"


@pytest.mark.parametrize(
    "rest", [b"Transfer-Encoding: chunked\r\n\r\nnot-a-size\r\n", b"X: " + b"x" * 100_000, b"\x00: \r\n\r\n"]
)
async def test_what_breaks_the_rules_of_http_is_a_bad_request_and_no_error_of_ours(
    service: Service, caplog: pytest.LogCaptureFixture, rest: bytes
) -> None:
    async with _connected(service, rest) as reader:
        assert (await asyncio.wait_for(reader.readline(), 10)).split()[1] == b"400"
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
    assert (await service.client.post(PING)).status == 200


@asynccontextmanager
async def _connected(service: Service, rest: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """A connection on which the head of a request, and this much more, has been sent."""
    reader, writer = await asyncio.open_connection(HOST, urlsplit(service.client.url).port)
    writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + rest)
    await writer.drain()
    yield reader
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_requests_that_are_being_answered_end_before_the_server_stops(db_url: str) -> None:
    async with serving(db_url) as service:
        calls = [asyncio.create_task(service.client.call("job")) for _ in range(5)]
        await asyncio.gather(*calls)
        assert await service.count_tasks() == 5
    with pytest.raises(RuntimeError):
        await service.client.rpc("server/discover")
