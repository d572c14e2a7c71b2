"""Questions that a person answers in the browser, in place of the task's owner."""

from __future__ import annotations

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.domain.task import Claim, Json, Question
from app.http.ui import looks
from app.wire.envelope import dumps
from tests.http.ui.desks import Page, Reader
from tests.storage.scene import OWNER, Scene

FORM = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "title": "Which colour", "enum": ["red", "green"], "enumNames": ["Red", "Green"]},
        "count": {"type": "integer", "minimum": 1, "default": 3},
        "note": {"type": "string", "description": "For <b>the file</b>"},
        "sure": {"type": "boolean"},
        "parts": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    },
    "required": ["colour", "sure"],
}
ODD_KEY = "a/b?c&d=é \"'<☃>#%"


def elicitation(form: dict[str, Any], message: str = "Which one?") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": form}}


async def asked(scene: Scene, **requests: dict[str, Any]) -> Claim:
    claim = await scene.running()
    await scene.store.ask(claim, [Question(key, dumps(request)) for key, request in requests.items()])
    return claim


async def recorded(scene: Scene, claim: Claim) -> dict[str, Any]:
    rows = await scene.children(claim, "task_input_responses")
    return {row["key"]: json.loads(row["response"]) for row in rows}


async def test_a_form_is_made_of_the_questions_schema(reader: Reader, scene: Scene) -> None:
    claim = await asked(scene, q=elicitation(FORM))
    page = await reader.get(f"/inbox/{claim.task_id}?key=q")
    for words in ("Which one?", "Which colour", "Red", "Green", "A whole number, at least 1", "For <b>the file</b>"):
        assert words in page.words
    assert 'name="f1" type="text" inputmode="numeric" value="3"' in page.html
    assert page.html.count('type="checkbox" name="f4"') == 2
    assert page.html.count('type="radio" name="f3"') == 2
    assert page.html.count(" required") == 1 + 2 + 2  # of the search, the colours, and yes or no


async def test_an_answer_is_recorded_as_the_owners_and_the_task_goes_on(reader: Reader, scene: Scene) -> None:
    claim = await asked(scene, q=elicitation(FORM))
    fields = {"f0": "1", "f1": "7", "f2": "two\r\nlines ☃", "f3": "yes", "f4": ["0", "1"]}
    with capture_logs() as logs:
        page = await reader.act(f"/inbox/{claim.task_id}?key=q", action="accept", **fields)
    assert page.path == f"/ui/tasks/{claim.task_id}?said=answered"
    assert "The answer was recorded" in page.words
    assert "To the inbox" in page.words
    content = {"colour": "green", "count": 7, "note": "two\nlines ☃", "sure": True, "parts": ["a", "b"]}
    assert await recorded(scene, claim) == {"q": {"action": "accept", "content": content}}
    state = await scene.state(claim, OWNER)
    assert (state.task.status, state.questions) == ("working", ())
    told = [entry for entry in logs if entry["log_level"] != "debug"]
    assert [entry["event"] for entry in told] == ["answered by operator"]
    assert "green" not in str(logs)
    assert str(claim.task_id) not in str(told)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_can_be_declined_or_dismissed_without_filling_in(
    action: str, reader: Reader, scene: Scene
) -> None:
    claim = await asked(scene, q=elicitation(FORM))
    await reader.act(f"/inbox/{claim.task_id}?key=q", action=action, f2="typed already")
    assert await recorded(scene, claim) == {"q": {"action": action}}


async def test_what_does_not_fit_is_told_at_its_field_and_nothing_typed_is_lost(reader: Reader, scene: Scene) -> None:
    claim = await asked(scene, q=elicitation(FORM))
    fields: dict[str, Any] = {"f0": "0", "f1": "none", "f2": 'say "<i>"\u200f', "f4": ["1"]}
    page = await reader.act(f"/inbox/{claim.task_id}?key=q", action="accept", **fields)
    assert page.status == 422
    assert "count : This is not a whole number." in page.words
    assert "sure : This is needed." in page.words
    assert 'id="f1-flaw">This is not a whole number.' in page.html
    assert 'value="none"' in page.html
    assert "say &#34;&lt;i&gt;&#34;\u200f" in page.html
    assert 'name="f0" value="0" id="f0" checked' in page.html
    assert 'name="f4" value="1" checked' in page.html
    assert await recorded(scene, claim) == {}
    assert (await scene.state(claim)).task.status == "input_required"
    mended = {**fields, "f1": "2", "f3": "no"}
    page = await reader.post(f"/inbox/{claim.task_id}?key=q", token=page.token, action="accept", **mended)
    assert "said=answered" in page.path


async def test_a_question_that_was_answered_meanwhile_is_not_answered_again(reader: Reader, scene: Scene) -> None:
    claim = await asked(scene, q=elicitation(FORM), other=elicitation(FORM))
    path = f"/inbox/{claim.task_id}?key=q"
    form = await reader.get(path)
    await scene.store.answer(OWNER, claim.task_id, {"q": Json('{"action":"decline"}')})
    page = await reader.post(path, token=form.token, action="cancel")
    assert (page.path, "answered already" in page.words) == (f"/ui/tasks/{claim.task_id}?said=late", True)
    assert await recorded(scene, claim) == {"q": {"action": "decline"}}
    assert (await reader.get(path)).path.endswith("said=late")


@pytest.mark.parametrize("action", ["", "drop", "ACCEPT"])
async def test_nothing_else_can_be_done_with_a_question(action: str, reader: Reader, scene: Scene) -> None:
    claim = await asked(scene, q=elicitation(FORM))
    page = await reader.act(f"/inbox/{claim.task_id}?key=q", action=action)
    assert (page.status, "Choose what to do" in page.words) == (422, True)
    assert await recorded(scene, claim) == {}


async def test_keys_and_names_may_be_any_text(reader: Reader, scene: Scene) -> None:
    form = {"type": "object", "properties": {ODD_KEY: {"type": "string", "enum": [" a\r\n", "\u202eb"]}}}
    claim = await asked(scene, **{ODD_KEY: elicitation(form)})
    inbox = await reader.get("/inbox")
    (link,) = [link for link in inbox.links if link.startswith("/ui/inbox/")]
    await reader.act(link.removeprefix("/ui"), action="accept", f0="1")
    expected = {"action": "accept", "content": {ODD_KEY: "\u202eb"}}
    assert await recorded(scene, claim) == {ODD_KEY: expected}


async def test_a_text_keeps_what_browsers_can_send(reader: Reader, scene: Scene) -> None:
    form = {"type": "object", "properties": {"a": {"type": "string"}}}
    claim = await asked(scene, q=elicitation(form))
    await reader.act(f"/inbox/{claim.task_id}?key=q", action="accept", f0="\0 é 😀 \u202e")
    assert (await recorded(scene, claim))["q"]["content"] == {"a": "\0 é 😀 \u202e"}


@pytest.mark.parametrize(
    ("url", "linked"), [("https://pay.example.com/a?b=1", True), ("javascript:alert(1)", False), ("file:///x", False)]
)
async def test_a_page_to_open_is_a_link_only_if_it_is_one_of_the_web(
    url: str, linked: bool, reader: Reader, scene: Scene
) -> None:
    params = {"mode": "url", "message": "Pay", "url": url, "elicitationId": "e"}
    claim = await asked(scene, q={"method": "elicitation/create", "params": params})
    page = await reader.get(f"/inbox/{claim.task_id}?key=q")
    assert (url in page.links, url in page.words) == (linked, True)
    assert linked == ("of pay.example.com" in page.words)
    await reader.post(f"/inbox/{claim.task_id}?key=q", token=page.token, action="accept")
    assert await recorded(scene, claim) == {"q": {"action": "accept"}}


@pytest.mark.parametrize(
    ("method", "good", "bad"),
    [
        ("roots/list", '{"roots":[{"uri":"file:///a"}]}', '{"roots":7}'),
        (
            "sampling/createMessage",
            '{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}',
            '{"role":"assistant"}',
        ),
    ],
)
async def test_a_question_for_programs_takes_their_response_as_json(
    method: str, good: str, bad: str, reader: Reader, scene: Scene
) -> None:
    claim = await asked(scene, q={"method": method, "params": {}})
    path = f"/inbox/{claim.task_id}?key=q"
    assert (await reader.get(path)).status == 200
    for wrong, says in ((bad, "not a response"), ("{", "not JSON"), ("[NaN]", "cannot be sent"), ("", "not JSON")):
        page = await reader.act(path, response=wrong)
        assert (page.status, says in page.words) == (422, True), wrong
    page = await reader.post(path, token=page.token, response=good)
    assert await recorded(scene, claim) == {"q": json.loads(good)}


async def test_the_oldest_tasks_questions_come_first_page_by_page(
    reader: Reader, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "INBOX_TASKS", 2)
    claims = sorted([await scene.parked("first", "second") for _ in range(3)], key=lambda claim: claim.task_id)
    first = await reader.get("/inbox")
    assert links_of(first) == [f"{claim.task_id}?key={key}" for claim in claims[:2] for key in ("first", "second")]
    (more,) = [link for link in first.links if "after=" in link]
    second = await reader.get(more.removeprefix("/ui"))
    assert links_of(second) == [f"{claims[2].task_id}?key={key}" for key in ("first", "second")]
    await scene.store.cancel(OWNER, claims[0].task_id)
    assert str(claims[0].task_id) not in (await reader.get("/inbox")).html


async def test_a_question_that_is_too_long_for_the_list_can_still_be_answered(reader: Reader, scene: Scene) -> None:
    claim = await asked(scene, q=elicitation(FORM, "long " * 5000))
    inbox = await reader.get("/inbox")
    assert "too long to be shown" in inbox.words
    await reader.act(f"/inbox/{claim.task_id}?key=q", action="decline")
    assert await recorded(scene, claim) == {"q": {"action": "decline"}}


def links_of(page: Page) -> list[str]:
    return [link.removeprefix("/ui/inbox/") for link in page.links if link.startswith("/ui/inbox/")]
