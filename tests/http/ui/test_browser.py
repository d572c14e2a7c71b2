"""The pages in a real browser, before a real process: what only that can show."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from playwright.async_api import Page, async_playwright, expect

from tests.http.ui.desks import PASSWORD
from tests.support.command import perdure
from tests.support.rpc import TASKS, Client

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
WAIT_MS = 30_000.0
MOST_TABS = 60
TOOLS = '''
import asyncio
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from app import Accepted, ToolContext, tool


class Order(BaseModel):
    sure: bool
    note: str
    size: Literal["small", "large"] = "small"


@tool
async def order(ctx: ToolContext, item: str, gate: str) -> str:
    """Order something once somebody has agreed and the gate is open."""
    answer = await ctx.elicit("sure", f"Order {item}?", Order)
    assert isinstance(answer, Accepted)
    await ctx.status("Ordering")
    while not Path(gate).exists():
        await asyncio.sleep(0.01)
    return f"{item}, {answer.content.note}, {answer.content.size}"


@tool
async def wait() -> None:
    """Take long."""
    await asyncio.sleep(600)


@tool
async def fail() -> None:
    """Break."""
    raise RuntimeError("<img src=x onerror=alert(1)>")
'''


@dataclass(frozen=True)
class Desk:
    """A process whose pages are looked at.

    Attributes:
        url: of its pages.
        endpoint: where its tools are called.
    """

    url: str
    endpoint: str
    chromium: str

    async def call(self, tool: str, **arguments: Any) -> str:
        """Start a task; its id."""
        async with ClientSession() as session:
            client = Client(session, self.endpoint, capabilities=TASKS)
            task_id: str = (await client.call(tool, **arguments)).result["taskId"]
            return task_id

    @asynccontextmanager
    async def opened(self, *, logged_in: bool = True, **options: Any) -> AsyncIterator[Page]:
        """A browser on the pages. Whatever it complains of fails the test."""
        complaints: list[str] = []
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=self.chromium, args=ARGUMENTS)
            context = await browser.new_context(**DESKTOP | options)
            context.set_default_timeout(WAIT_MS)
            page = await context.new_page()
            # A wrong password is answered with 401, which the browser remarks on.
            page.on("console", lambda told: None if "status of 401" in told.text else complaints.append(told.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("dialog", lambda dialog: complaints.append(dialog.message))
            await page.goto(self.url)
            if logged_in:
                await page.get_by_label("Password").fill(PASSWORD)
                await page.keyboard.press("Enter")
                await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
            yield page
            await browser.close()
        assert complaints == []


@pytest.fixture(scope="module")
def chromium(request: pytest.FixtureRequest) -> str:
    """The browser."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        reason = "the tests of the operators' pages need Chromium, which is not on the PATH: apt-get install chromium"
        if request.config.getoption("browser") == "required":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def desk(chromium: str, module_db_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One process for the tests of this file."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "tools.py").write_text(TOOLS)
    settings = {"DATABASE_URL": module_db_url, "PERDURE_OPS_PORT": "0", "PERDURE_UI_PASSWORD": PASSWORD}
    with perdure(folder / "dev", "dev", "--tools", folder / "tools.py", "--port", "0", **settings) as dev:
        url = dev.says(r'"url": "(http://[^"]+)", "event": "answering operators"')
        endpoint = dev.says(r"answers on (\S+)")
        dev.says("worker started")
        yield Desk(f"{url}/ui/", endpoint, chromium)
        assert PASSWORD not in dev.out + dev.err


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until this has the focus, as one sees it."""
    for _ in range(MOST_TABS):
        await page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if name in (await focused.inner_text() or await focused.get_attribute("id") or ""):
            assert await focused.evaluate("e => getComputedStyle(e).outlineStyle !== 'none'")
            return
    raise AssertionError(f"Tab does not lead to {name}")


async def stay(page: Page) -> None:
    """From now on, a page that is loaded anew can be told."""
    await page.evaluate("window.stayed = true")


async def stayed(page: Page) -> bool:
    """Whether it was not."""
    return bool(await page.evaluate("window.stayed === true"))


async def test_a_question_is_answered_by_keyboard_alone_and_the_task_completes_before_ones_eyes(
    desk: Desk, tmp_path: Path
) -> None:
    task_id = await desk.call("order", item="<b>tea</b>", gate=str(tmp_path / "open"))
    async with desk.opened(logged_in=False) as page:
        await page.keyboard.type("not the password at all")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("That is not the password.")
        await page.keyboard.type(PASSWORD)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await page.keyboard.press("Tab")
        await expect(page.locator(":focus")).to_have_text("Skip to the content")
        await tab_to(page, "Inbox")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Order <b>tea</b>?")).to_be_visible()
        await tab_to(page, "Answer")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("radio", name="Yes")).to_be_focused()
        await page.keyboard.press("Space")
        await page.keyboard.press("Tab")
        await page.keyboard.type("with milk")
        await page.keyboard.press("Tab")
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status")).to_contain_text("The answer was recorded")
        await expect(page.locator("h1 .chip")).to_have_text("running", timeout=WAIT_MS)
        await stay(page)
        (tmp_path / "open").touch()
        await expect(page.locator("h1 .chip")).to_have_text("completed", timeout=WAIT_MS)
        await expect(page.locator("#outcome-value")).to_contain_text("<b>tea</b>, with milk, large")
        assert await stayed(page)
        assert page.url.endswith(task_id)


async def test_a_task_is_cancelled_after_asking_once_more(desk: Desk) -> None:
    task_id = await desk.call("wait")
    async with desk.opened() as page:
        await page.get_by_label("Find a task by its id").fill(task_id)
        await page.keyboard.press("Enter")
        await expect(page.locator("h1 .chip")).to_have_text("running", timeout=WAIT_MS)
        await page.get_by_role("link", name="Cancel…").click()
        await page.get_by_role("link", name="No, leave it").click()
        await expect(page.locator("h1 .chip")).to_have_text("running")
        await page.get_by_role("link", name="Cancel…").click()
        await page.get_by_role("button", name="Yes, cancel the task").click()
        await expect(page.get_by_role("status")).to_contain_text("told to stop")
        await expect(page.locator("h1 .chip")).to_have_text("cancelled", timeout=WAIT_MS)
        await page.get_by_role("link", name="Retry…").click()
        await page.get_by_role("button", name="Yes, make a new task").click()
        await expect(page.locator("h1 .chip")).to_have_text("running", timeout=WAIT_MS)
        assert task_id not in page.url


async def test_a_link_from_elsewhere_finds_one_logged_in(desk: Desk) -> None:
    async with desk.opened() as page:
        await page.goto(f"data:text/html,<a href='{desk.url}tasks?owner=me'>a task</a>")
        await page.get_by_role("link").click()
        await expect(page.get_by_role("heading", name="Tasks")).to_be_visible()
        await expect(page.get_by_label("Owner")).to_have_value("me")


async def test_a_list_follows_what_happens_and_leaves_the_reader_where_they_are(desk: Desk) -> None:
    failed = await desk.call("fail")
    async with desk.opened() as page:
        await page.goto(f"{desk.url}tasks?tool=fail")
        row = page.locator(f"#t-{failed}")
        await expect(row).to_be_visible(timeout=WAIT_MS)
        await expect(page.locator("#pulse")).to_have_text("Live", timeout=WAIT_MS)
        await row.focus()
        await stay(page)
        another = await desk.call("fail")
        await expect(page.locator(f"#t-{another}")).to_be_visible(timeout=WAIT_MS)
        await expect(row).to_be_focused()
        assert await stayed(page)
        await page.keyboard.press("Enter")
        await expect(page.locator("pre", has_text="RuntimeError")).to_contain_text("<img src=x onerror=alert(1)>")


async def test_what_is_folded_or_unfolded_stays_so_when_the_page_changes(desk: Desk, tmp_path: Path) -> None:
    task_id = await desk.call("order", item="jam", gate=str(tmp_path / "open"))
    async with desk.opened() as page:
        await page.goto(f"{desk.url}tasks/{task_id}")
        await expect(page.get_by_role("link", name="Answer “sure”")).to_be_visible(timeout=WAIT_MS)
        await page.locator("#capabilities summary").click()
        await page.locator("#params summary").click()
        await page.get_by_role("link", name="Answer “sure”").focus()
        async with desk.opened() as other:
            await other.goto(f"{desk.url}inbox/{task_id}?key=sure")
            await other.get_by_role("button", name="Decline").click()
            await expect(other.get_by_role("status")).to_contain_text("recorded")
        await expect(page.locator("h1 .chip")).to_have_text("failed", timeout=WAIT_MS)
        assert await page.locator("#capabilities").evaluate("each => each.open")
        assert not await page.locator("#params").evaluate("each => each.open")


async def test_on_a_phone_no_page_is_wider_than_the_screen_and_what_is_pressed_is_large(desk: Desk) -> None:
    task_id = await desk.call("order", item="x" * 300, gate="none")
    await desk.call("fail")
    async with desk.opened(**PHONE) as page:
        for place in ("", "tasks", f"tasks/{task_id}", f"tasks/{task_id}/cancel", "inbox"):
            await page.goto(desk.url + place)
            await expect(page.locator("h1")).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
        await page.goto(f"{desk.url}tasks")
        assert await page.locator("tbody tr").first.evaluate("each => getComputedStyle(each).display") == "grid"
        await page.goto(f"{desk.url}tasks/{task_id}")
        await page.get_by_role("link", name="Answer “sure”").tap(timeout=WAIT_MS)
        for pressed in await page.locator("main button, main .pick").all():
            box = await pressed.bounding_box()
            assert box is not None
            assert box["height"] >= 40
        await page.get_by_role("button", name="Dismiss").tap()
        await expect(page.get_by_role("status")).to_contain_text("recorded")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_stands_out_from_its_ground_in_the_light_and_in_the_dark(scheme: Any, desk: Desk) -> None:
    await desk.call("fail")
    async with desk.opened(color_scheme=scheme) as page:
        for place in ("", "tasks", "inbox"):
            await page.goto(desk.url + place)
            assert (await page.evaluate(DARKNESS)) is (scheme == "dark")
            weak = await page.evaluate(WEAK)
            assert weak == [], place


async def test_everything_works_without_javascript(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    task_id = await desk.call("order", item="ink", gate=str(tmp_path / "open"))
    async with desk.opened(java_script_enabled=False) as page:
        await page.goto(f"{desk.url}inbox")
        assert await page.locator("noscript meta[http-equiv=refresh]").count() == 1
        while not await page.locator(f'a[href*="{task_id}?key=sure"]').count():
            await asyncio.sleep(0.05)
            await page.reload()
        await page.locator(f'a[href*="{task_id}?key=sure"]').click()
        await page.get_by_label("Yes").check()
        await page.get_by_label("note").fill("blue")
        await page.get_by_role("button", name="Send the answer").click()
        await expect(page.get_by_role("status")).to_contain_text("recorded")
        while await page.locator("h1 .chip").inner_text() != "completed":
            await asyncio.sleep(0.05)
            await page.goto(f"{desk.url}tasks/{task_id}")
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("Password")).to_be_visible()


DARKNESS = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(each => each < 64)"

WEAK = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, index) => sum + each * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const faded = (element) => {
    let opacity = 1;
    for (let each = element; each; each = each.parentElement) opacity *= Number(getComputedStyle(each).opacity);
    return opacity;
  };
  const weak = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility()) continue;
    const [under, part] = [ground(element), faded(element)];
    const over = parse(getComputedStyle(element).color).map((each, index) => each * part + under[index] * (1 - part));
    const [low, high] = [light(under), light(over)].sort((a, b) => a - b);
    if ((high + 0.05) / (low + 0.05) < 4.5) weak.add(`${element.tagName}.${element.className}`);
  }
  return [...weak];
}"""
