"""What the pages show, and how it is narrowed."""

from __future__ import annotations

import html
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientSession, CookieJar
from structlog.testing import capture_logs

from app.domain.task import Claim, Json, Question, Task
from app.errors import StoreUnavailable
from app.http.ops import Ops
from app.http.readiness import Readiness
from app.http.ui import looks
from app.http.ui.site import Site
from app.storage.operator import Operator
from tests.http.ui.desks import PASSWORD, Page, Reader
from tests.storage.scene import Scene, new_task

HOSTILE = "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&\u202e"


def tasks_on(page: Page) -> list[str]:
    """The tasks that a list shows, in its order."""
    links = [link.partition("/ui/tasks/")[2] for link in page.links]
    return [link for link in links if len(link) == 36]


async def test_each_page_shows_what_there_is(reader: Reader, scene: Scene) -> None:
    waiting, running = await scene.parked(), await scene.running()
    failed = await scene.failed()
    overview = await reader.get("/")
    assert overview.status == 200
    for words in ("1 running", "1 waiting for answers", "1 failed in 24 hours", "It broke", "here :1"):
        assert words in overview.words
    tasks = await reader.get("/tasks")
    assert tasks_on(tasks) == [str(claim.task_id) for claim in (failed, running, waiting)]
    for claim in (waiting, running, failed):
        task = await reader.get(f"/tasks/{claim.task_id}")
        assert (task.status, str(claim.task_id) in task.words) == (200, True)
    inbox = await reader.get("/inbox")
    assert "colour?" in inbox.words
    assert f"/ui/inbox/{waiting.task_id}?key=colour" in inbox.links


async def test_where_there_is_nothing_each_page_says_what_to_do(reader: Reader) -> None:
    overview = await reader.get("/")
    for words in ("No worker runs", "perdure worker --tools", "No task failed in the last 24 hours"):
        assert words in overview.words
    assert "perdure call TOOL" in (await reader.get("/tasks")).words
    assert "No task is like this" in (await reader.get("/tasks?owner=nobody")).words
    assert "No task waits for an answer" in (await reader.get("/inbox")).words


async def test_what_needs_somebody_is_named_first(reader: Reader, scene: Scene) -> None:
    await scene.queued("orphaned")
    claim = await scene.running()
    await scene.silence(claim.worker_id)
    words = (await reader.get("/")).words
    assert "orphaned : 1 waiting, and no live worker has this tool" in words
    assert "here:1 has been silent for" in words
    assert "its 1 tasks are given to others" in words


async def test_a_task_is_told_with_all_that_belongs_to_it(reader: Reader, scene: Scene) -> None:
    claim = await scene.running(timeout_ms=90_000)
    await scene.store.step(claim, "fetch", Json('{"rows":[1,2]}'))
    await scene.store.retry(claim, 0, "Again", "Traceback: the disk is full")
    claim = await scene.claim(claim.task)
    await scene.store.status(claim, "Half way", 2.0, 4.0)
    page = await reader.get(f"/tasks/{claim.task_id}")
    said = (
        "running",
        "Half way",
        "2 of 4",
        "2, 1 failed",
        "1 min 30 s",
        "fetch",
        '"rows": [ 1, 2 ]',
        "the disk is full",
    )
    for words in (*said, "attempt 2 started", "step fetch ran", "attempt 1 ended: retried", "alice"):
        assert words in page.words
    await scene.store.finish(claim, Json('{"content":[],"weight":1.50}'))
    ended = await reader.get(f"/tasks/{claim.task_id}")
    assert '"weight": 1.50' in ended.words
    assert f"/ui/tasks/{claim.task_id}/retry" in ended.links
    assert f"/ui/tasks/{claim.task_id}/cancel" in page.links


async def test_a_payload_that_is_long_is_folded_and_cut(reader: Reader, scene: Scene) -> None:
    params = Json('{"name":"weigh","arguments":{"text":"' + "x" * 40_000 + '"}}')
    task = await scene.store.create(replace(new_task(), params=params))
    page = await reader.get(f"/tasks/{task.task_id}")
    assert "40,0" in page.words
    assert "of which the first 16,384 are shown" in page.words
    assert '<details id="params" class="payload">' in page.html
    assert len(page.html) < 40_000


async def test_what_others_wrote_is_text_and_never_markup(reader: Reader, scene: Scene) -> None:
    owner = f"owner {HOSTILE}"
    made = replace(new_task(f"tool {HOSTILE}", owner=owner), params=Json('{"name":"</pre><script>alert(3)</script>"}'))
    task = await scene.store.create(made)
    await scene.enlist(scene.worker_id)
    claim = await scene.claim(task)
    await scene.store.status(claim, f"says {HOSTILE}")
    await scene.store.step(claim, f"step {HOSTILE}", Json('"</pre><script>"'))
    await scene.store.retry(claim, 0, f"says {HOSTILE}", f"error {HOSTILE}")
    claim = await scene.claim(task)
    request = Json('{"method":"elicitation/create","params":{"message":"</p><script>alert(4)</script>"}}')
    await scene.store.ask(claim, [Question(f"key {HOSTILE}", request)])
    tasks = await reader.get("/tasks")
    task_page = await reader.get(f"/tasks/{task.task_id}")
    inbox = await reader.get("/inbox")
    (question,) = [link for link in inbox.links if link.startswith("/ui/inbox/")]
    form = await reader.get(question.removeprefix("/ui"))
    assert form.status == 200
    for page in (await reader.get("/"), tasks, task_page, inbox, form):
        assert page.html.count("<script") == 1
        assert "<img" not in page.html
        assert "\u202e" not in page.html
    assert "tool </pre></script><script>alert(1)</script>" in html_text(task_page)
    narrowed = [link for link in task_page.links if "?owner=" in link]
    assert tasks_on(await reader.get(narrowed[0].removeprefix("/ui"))) == [str(task.task_id)]


def html_text(page: Page) -> str:
    """The text of a page with its entities undone, markup included."""
    return html.unescape(page.html)


async def test_a_list_is_narrowed_by_all_that_one_can_choose(reader: Reader, scene: Scene) -> None:
    queued, failed = await scene.queued("a"), await scene.failed(owner="bob")
    parked = await scene.parked()
    await scene.age(queued, 7200)
    wanted: dict[str, list[Task | Claim]] = {
        "status=failed": [failed],
        "status=input_required": [parked],
        "activity=queued": [queued],
        "activity=waiting+for+answers": [parked],
        "tool=a": [queued],
        "tool=+a+": [queued],
        "owner=bob": [failed],
        "owner=bob&status=completed": [],
        "error=BROKE": [failed],
        "age=1h": [parked, failed],
        "status=&tool=&owner=": [parked, failed, queued],
        "status=nonsense&age=9y&activity=x&after=x": [parked, failed, queued],
    }
    for query, found in wanted.items():
        page = await reader.get(f"/tasks?{query}")
        assert tasks_on(page) == [str(task.task_id) for task in found], query
    chosen = await reader.get("/tasks?status=failed&owner=%22%3E%3Cb%3E")
    assert '<option value="failed" selected>' in chosen.html
    assert 'value="&#34;&gt;&lt;b&gt;"' in chosen.html


@pytest.mark.parametrize("text", ["%00", "%FF", "%ED%A0%80", "%F0%9F%98%80", "x" * 3000, "%0d%0a"])
async def test_no_text_of_a_filter_is_a_fault(text: str, reader: Reader, scene: Scene) -> None:
    for name in ("tool", "owner", "error", "status", "age", "after"):
        assert (await reader.get(f"/tasks?{name}={text}")).status == 200
    assert (await reader.get(f"/find?id={text}")).status == 404
    claim = await scene.parked()
    assert (await reader.get(f"/inbox/{claim.task_id}?key={text}")).path.endswith("said=late")


async def test_pages_of_a_list_follow_each_other(reader: Reader, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "PAGE", 2)
    made = sorted([str((await scene.queued("a&b")).task_id) for _ in range(5)], reverse=True)
    await scene.queued("other")
    seen: list[str] = []
    page = await reader.get("/tasks?tool=a%26b")
    assert "Newest" not in page.words
    while True:
        seen += tasks_on(page)
        older = [link for link in page.links if "after=" in link]
        if not older:
            break
        page = await reader.get(older[0].removeprefix("/ui"))
    assert seen == made
    assert "/ui/tasks?tool=a%26b" in page.links


async def test_an_id_that_is_typed_leads_to_its_task(reader: Reader, scene: Scene) -> None:
    task = await scene.queued()
    assert (await reader.get(f"/find?id=+{task.task_id}+")).path == f"/ui/tasks/{task.task_id}"
    assert (await reader.get(f"/find?id={task.task_id.hex}")).path == f"/ui/tasks/{task.task_id}"
    for unknown in (uuid4(), "nonsense", ""):
        page = await reader.get(f"/find?id={unknown}")
        assert (page.status, "no such task" in page.words) == (404, True)


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/01920000-0000-7000-8000-000000000000",
        "/tasks/nonsense",
        "/inbox/nonsense?key=a",
        "/nothing",
        "/static/x",
    ],
)
async def test_what_is_not_there_is_said_so(path: str, reader: Reader) -> None:
    page = await reader.get(path)
    assert (page.status, "There is no such page" in page.words) == (404, True)


async def test_while_the_database_is_away_or_slow_the_pages_say_so(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fault in (StoreUnavailable("postgresql://me:hush@there"), TimeoutError()):

        async def fail(*_: Any, fault: Exception = fault, **__: Any) -> Any:
            raise fault

        monkeypatch.setattr(Operator, "tasks", fail)
        page = await reader.get("/tasks")
        assert (page.status, "takes too long" in page.words) == (503, True)
        assert "hush" not in page.html


async def test_a_fault_of_ours_is_logged_and_not_shown(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("SELECT hush")

    monkeypatch.setattr(Operator, "tasks", fail)
    with capture_logs() as logs:
        page = await reader.get("/tasks")
    assert (page.status, "hush" in page.html) == (500, False)
    assert [entry["event"] for entry in logs] == ["a page for operators failed"]


async def test_before_the_process_serves_and_after_it_stops_the_pages_say_so(db_url: str) -> None:
    site = Site(PASSWORD)
    ops = Ops(Readiness(), pages={"/ui": site.app})
    url = f"http://127.0.0.1:{await ops.start('127.0.0.1', 0)}"
    try:
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
            reader = Reader(session, url, None, site)  # type: ignore[arg-type]
            page = await reader.log_in()
            assert (page.status, "Not now" in page.words) == (503, True)
    finally:
        await ops.stop()


async def test_the_files_of_the_pages_are_kept_by_browsers_until_they_change(reader: Reader) -> None:
    page = await reader.get("/login")
    for name, kind in (("pages.css", "text/css"), ("pages.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
        assert f"/ui/static/{name}?" in page.html
        file = await reader.get(f"/static/{name}")
        assert (file.status, kind in file.headers["Content-Type"]) == (200, True)
        assert "immutable" in file.headers["Cache-Control"]
