"""Who gets in, and what a page from elsewhere cannot do."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs

from app.http.ops import Ops
from app.http.readiness import Readiness
from app.http.ui.sessions import SESSION_SECONDS, TRY_SECONDS, WRONG_OF_ALL, WRONG_OF_ONE, Sessions, Tries
from tests.http.ui.desks import HOST, PASSWORD, Reader, pages
from tests.storage.scene import Scene

NOBODY = "00000000-0000-7000-8000-000000000000"


async def test_without_a_password_there_are_no_pages() -> None:
    ops = Ops(Readiness())
    port = await ops.start(HOST, 0)
    try:
        async with ClientSession() as session:
            for path in ("/ui", "/ui/", "/ui/login", "/ui/static/pages.css"):
                async with session.get(f"http://{HOST}:{port}{path}") as answer:
                    assert answer.status == 404
    finally:
        await ops.stop()


@pytest.mark.parametrize("path", ["/", "/tasks?owner=a", f"/tasks/{NOBODY}", "/inbox", f"/tasks/{NOBODY}/cancel", "/x"])
async def test_whoever_has_not_logged_in_is_sent_to_do_so_and_then_to_the_page(path: str, db_url: str) -> None:
    async with pages(db_url, logged_in=False) as reader:
        asked = await reader.get(path, follow=False)
        assert asked.status == 303
        login = await reader.get(path)
        assert login.path.startswith("/ui/login?next=")
        assert "Perdure" not in asked.html
        page = await reader.log_in(next_=f"/ui{path}")
        assert page.path == f"/ui{path}"


async def test_a_link_on_another_site_leads_to_the_page_though_it_brings_no_cookie(db_url: str) -> None:
    async with pages(db_url, logged_in=False) as reader:
        hop = await reader.get("/tasks?owner=a", headers={"Sec-Fetch-Site": "cross-site"})
        assert (hop.status, '<meta http-equiv="refresh" content="0">' in hop.html) == (200, True)
        again = await reader.get("/tasks?owner=a", headers={"Sec-Fetch-Site": "same-origin"})
        assert again.path.startswith("/ui/login")


async def test_streams_and_changes_need_a_session_too(db_url: str) -> None:
    async with pages(db_url, logged_in=False) as reader:
        assert (await reader.get("/events?page=/ui/", follow=False)).status == 401
        for path in (f"/tasks/{NOBODY}/cancel", f"/inbox/{NOBODY}?key=a", "/logout", "/nothing"):
            assert (await reader.post(path, token="a" * 64)).status == 401


async def test_only_the_password_opens_a_session_and_it_is_not_logged(db_url: str) -> None:
    async with pages(db_url, logged_in=False) as reader:
        with capture_logs() as logs:
            for wrong in ("", PASSWORD[:-1], PASSWORD + " ", "pässword ☃"):
                refused = await reader.log_in(wrong)
                assert (refused.status, "That is not the password" in refused.words) == (401, True)
                assert "Set-Cookie" not in refused.headers
            entered = await reader.post("/login", follow=False, password=PASSWORD)
        assert entered.status == 303
        cookie = entered.headers["Set-Cookie"]
        for part in ("HttpOnly", "SameSite=Strict", "Path=/ui", f"Max-Age={SESSION_SECONDS}"):
            assert part in cookie
        assert "Secure" not in cookie
        assert PASSWORD not in str(logs)
        assert [entry["log_level"] for entry in logs] == ["warning"] * 4 + ["info"]


async def test_behind_tls_the_cookie_goes_over_tls_only(db_url: str) -> None:
    async with pages(db_url, logged_in=False) as reader:
        headers = {"X-Forwarded-Proto": "https", "Origin": reader.url}
        url = f"{reader.url}/ui/login"
        async with reader.session.post(
            url, data={"password": PASSWORD}, headers=headers, allow_redirects=False
        ) as answer:
            assert "Secure" in answer.headers["Set-Cookie"]


async def test_a_session_ends_after_its_time_and_where_one_logs_out(db_url: str) -> None:
    now = 1_000_000.0
    sessions = Sessions(PASSWORD, clock=lambda: now)
    async with pages(db_url, sessions=sessions) as reader:
        now += SESSION_SECONDS - 1
        assert (await reader.get("/")).path == "/ui/"
        now += 2
        assert (await reader.get("/")).path.startswith("/ui/login")
        overview = await reader.log_in()
        await reader.post("/logout", token=overview.token)
        assert (await reader.get("/")).path.startswith("/ui/login")


def test_every_process_knows_a_session_and_another_password_ends_it() -> None:
    cookie = Sessions(PASSWORD).open()
    assert Sessions(PASSWORD).left(cookie) > SESSION_SECONDS - 60
    assert Sessions(PASSWORD + "!").left(cookie) == 0
    head, _, signature = cookie.rpartition(".")
    later = str(int(head.partition(".")[0]) + 9)
    for forged in ("", "..", cookie + "0", f"{head}.", f"{later}.{head.partition('.')[2]}.{signature}", "☃.☃.☃", head):
        assert Sessions(PASSWORD).left(forged) == 0


def test_a_form_belongs_to_its_session() -> None:
    sessions = Sessions(PASSWORD)
    one, other = sessions.open(), sessions.open()
    assert sessions.is_token(one, sessions.token(one))
    assert not sessions.is_token(one, sessions.token(other))
    assert not sessions.is_token(one, one.rpartition(".")[2])


async def test_after_many_wrong_passwords_even_the_right_one_waits(db_url: str) -> None:
    now = 0.0
    async with pages(db_url, logged_in=False, tries=Tries(lambda: now)) as reader:
        for _ in range(WRONG_OF_ONE):
            assert (await reader.log_in("wrong")).status == 401
        refused = await reader.log_in()
        assert (refused.status, refused.headers["Retry-After"]) == (429, str(int(TRY_SECONDS) + 1))
        now = TRY_SECONDS + 1
        assert (await reader.log_in()).status == 200


def test_wrong_passwords_from_everywhere_are_counted_too_and_few_are_remembered() -> None:
    tries = Tries(lambda: 0.0)
    for number in range(WRONG_OF_ALL - 1):
        tries.wrong(f"10.0.0.{number}")
    assert tries.pause("10.1.1.1") == 0
    tries.wrong(None)
    assert tries.pause("10.1.1.1") == TRY_SECONDS
    for number in range(5000):
        tries.wrong(str(number))
    assert len(tries._wrong) == 1000


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "https://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://[",
        "http://localhost:3000",
    ],
)
async def test_a_form_of_another_page_changes_nothing(origin: str | None, reader: Reader, scene: Scene) -> None:
    task = await scene.queued()
    token = (await reader.get(f"/tasks/{task.task_id}/cancel")).token
    refused = await reader.post(f"/tasks/{task.task_id}/cancel", origin=origin, token=token)
    assert refused.status == 403
    assert (await scene.state(task)).task.status == "working"
    assert (await reader.post("/login", origin=origin, password=PASSWORD)).status == 403


async def test_a_form_without_its_sessions_token_is_not_done_but_can_be_sent_again(
    reader: Reader, scene: Scene
) -> None:
    claim = await scene.parked()
    path = f"/inbox/{claim.task_id}?key=colour"
    for token in ("", "0" * 64, "☃"):
        again = await reader.post(path, token=token, action="decline", note="typed <b>\n")
        assert (again.status, "Nothing was done yet" in again.words) == (403, True)
        assert '<input type="hidden" name="note" value="typed &lt;b&gt;\n">' in again.html
    assert (await scene.state(claim)).task.status == "input_required"
    assert (await reader.post(path, token=again.token, action="decline")).status == 200
    assert (await scene.state(claim)).task.status == "working"


@pytest.mark.parametrize(
    "target",
    ["https://evil.example", "//evil.example", "/ui//evil.example", "/ui/\\evil", "/other", "", "/ui/a\r\nX: y", "/ui"],
)
async def test_after_logging_in_one_stays_here(target: str, db_url: str) -> None:
    async with pages(db_url, logged_in=False) as reader:
        entered = await reader.post("/login", follow=False, password=PASSWORD, next=target)
        assert (entered.status, entered.headers["Location"]) == (303, "/ui/")


async def test_every_answer_forbids_what_a_page_does_not_need(reader: Reader) -> None:
    for path in ("/", "/tasks", "/login", "/nothing", "/static/pages.js", "/static/nothing"):
        headers = (await reader.get(path)).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"
        if not path.startswith("/static/pages"):
            assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/json"])
async def test_other_kinds_of_bodies_are_refused(kind: str, reader: Reader) -> None:
    headers = {"Origin": reader.url, "Content-Type": kind}
    async with reader.session.post(f"{reader.url}/ui/login", data=b"password=x", headers=headers) as answer:
        assert answer.status == 415


@pytest.mark.parametrize("body", [b"\xff=1", b"a=%FF", b"&".join(b"a=1" for _ in range(1001))])
async def test_a_body_that_is_no_form_is_refused(body: bytes, reader: Reader) -> None:
    headers = {"Origin": reader.url, "Content-Type": "application/x-www-form-urlencoded"}
    async with reader.session.post(f"{reader.url}/ui/login", data=body, headers=headers) as answer:
        assert answer.status == 400
