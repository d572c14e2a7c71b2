"""ask and answer: each key is asked once and answered at most once, and the last answer makes the task ready."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from app.domain.task import REQUEST_STATE_MS, Json, Question, Reply, Status
from app.errors import StaleAttempt
from tests.storage.scene import OWNER, RESULT, Scene, question, response


async def test_a_task_that_asks_is_parked_and_shows_its_questions_in_their_order(scene: Scene) -> None:
    claim = await scene.running()
    questions = [question(key) for key in ("zebra", "ant", "", "🦔", "10", "9")]
    task = await scene.store.ask(claim, questions)
    assert (task.status, task.version, task.epoch) == (Status.INPUT_REQUIRED, 2, 1)
    assert (await scene.state(claim)).questions == tuple(questions)
    row = await scene.row(claim)
    assert (row["worker_id"], row["ready_at"], row["questions_open"]) == (None, None, 6)
    asked = await scene.children(claim, "task_input_requests")
    assert {(r["epoch"], r["asked_at"]) for r in asked} == {(1, task.updated_at)}
    assert await scene.children(claim, "task_attempts") == []


async def test_a_question_waits_as_long_as_the_tool_lets_it(scene: Scene) -> None:
    claim = await scene.parked(answer_within_ms=60_000)
    row = await scene.row(claim)
    assert row["deadline_at"] == row["updated_at"] + timedelta(minutes=1)


async def test_a_question_does_not_wait_beyond_the_ttl(scene: Scene) -> None:
    claim = await scene.parked(answer_within_ms=60_000, ttl_ms=30_000)
    row = await scene.row(claim)
    assert row["deadline_at"] == row["created_at"] + timedelta(seconds=30)


@pytest.mark.parametrize(("within_ms", "waits_ms"), [(604_800_000, REQUEST_STATE_MS), (60_000, 60_000)])
async def test_a_question_on_a_request_waits_no_longer_than_its_state_is_good(
    scene: Scene, within_ms: int, waits_ms: int
) -> None:
    claim = await scene.parked(answer_within_ms=within_ms, reply=Reply.REQUEST)
    row = await scene.row(claim)
    assert row["deadline_at"] == row["updated_at"] + timedelta(milliseconds=waits_ms)


async def test_a_question_that_waits_for_a_request_gets_the_tools_time_once_the_task_is_detached(scene: Scene) -> None:
    claim = await scene.parked(answer_within_ms=604_800_000, reply=Reply.REQUEST)
    before = await scene.row(claim)
    task = await scene.store.detach_for(OWNER, claim.task_id)
    assert task is not None
    assert (task.reply, task.status, task.version) == (Reply.TASK, Status.INPUT_REQUIRED, before["version"])
    row = await scene.row(claim)
    week = timedelta(days=7)
    assert before["updated_at"] + week < row["deadline_at"] < before["updated_at"] + week + timedelta(minutes=5)
    assert row | {"reply": "request", "deadline_at": None} == before | {"deadline_at": None}


async def test_a_detached_question_does_not_wait_beyond_the_ttl(scene: Scene) -> None:
    claim = await scene.parked(ttl_ms=30_000, reply=Reply.REQUEST)
    await scene.store.detach_for(OWNER, claim.task_id)
    row = await scene.row(claim)
    assert row["deadline_at"] == row["created_at"] + timedelta(seconds=30)


async def test_a_task_that_waits_or_runs_keeps_its_deadline_when_it_is_detached(scene: Scene) -> None:
    for task in (await scene.queued(reply=Reply.REQUEST, ttl_ms=60_000), await scene.running(reply=Reply.REQUEST)):
        before = await scene.row(task)
        assert await scene.store.detach_for(OWNER, task.task_id) is not None
        assert await scene.row(task) == before | {"reply": "task"}


async def test_nothing_is_detached_that_has_ended_or_has_a_handle_or_is_anothers(scene: Scene) -> None:
    ended, handed = await scene.completed(reply=Reply.REQUEST), await scene.running()
    other = await scene.running(reply=Reply.REQUEST)
    before = [await scene.everything(claim) for claim in (ended, handed, other)]
    assert await scene.store.detach_for(OWNER, ended.task_id) is None
    assert await scene.store.detach_for(OWNER, handed.task_id) is None
    assert await scene.store.detach_for("mallory", other.task_id) is None
    assert [await scene.everything(claim) for claim in (ended, handed, other)] == before


@pytest.mark.parametrize("answers", [{}, {"colour": response()}, {"age": response()}])
async def test_what_a_later_request_declares_replaces_what_the_first_one_did(
    scene: Scene, answers: dict[str, Json]
) -> None:
    claim = await scene.parked("colour", "size")
    declared = Json('{"sampling": {}}')
    task = await scene.store.answer(OWNER, claim.task_id, answers, capabilities=declared)
    assert (task is None) == ("colour" not in answers)
    (request,) = await scene.children(claim, "task_requests")
    assert request["capabilities"] == declared
    await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
    task = await scene.store.answer(OWNER, claim.task_id, {"size": response()})
    assert task is not None
    assert (await scene.claim(task)).capabilities == declared


async def test_what_is_declared_by_others_or_too_late_changes_nothing(scene: Scene) -> None:
    parked, running = await scene.parked("colour"), await scene.running()
    before = [await scene.everything(claim) for claim in (parked, running)]
    declared = Json('{"sampling":{}}')
    assert await scene.store.answer("mallory", parked.task_id, {"colour": response()}, capabilities=declared) is None
    assert await scene.store.answer(OWNER, running.task_id, {}, capabilities=declared) is None
    assert [await scene.everything(claim) for claim in (parked, running)] == before


async def test_asked_twice_is_asked_once(scene: Scene) -> None:
    claim = await scene.running()
    first = await scene.store.ask(claim, [question("colour")])
    before = await scene.everything(claim)
    assert await scene.store.ask(claim, [question("colour")]) == first
    assert await scene.everything(claim) == before


async def test_asked_twice_succeeds_also_when_the_answer_was_faster_than_the_repetition(scene: Scene) -> None:
    claim = await scene.parked("colour")
    await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
    before = await scene.everything(claim)
    assert (await scene.store.ask(claim, [question("colour")])).status is Status.WORKING
    assert await scene.everything(claim) == before


@pytest.mark.requirement("R22", "R23")
async def test_a_key_that_was_asked_before_cannot_be_asked_again(scene: Scene) -> None:
    claim = await scene.parked("colour")
    task = await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
    assert task is not None
    second = await scene.claim(task)
    before = await scene.everything(second)
    with pytest.raises(asyncpg.UniqueViolationError):
        await scene.store.ask(second, [question("size"), Question("colour", question("shape").request)])
    assert await scene.everything(second) == before


async def test_the_only_answer_makes_the_task_ready_and_is_there_at_the_next_claim(scene: Scene) -> None:
    claim = await scene.parked("colour")
    task = await scene.store.answer(OWNER, claim.task_id, {"colour": response("red")})
    assert task is not None
    assert (task.status, task.status_message, task.version) == (Status.WORKING, None, 3)
    row = await scene.row(claim)
    assert (row["questions_open"], row["ready_at"], row["deadline_at"]) == (0, task.updated_at, None)
    again = await scene.claim(task)
    assert (again.epoch, again.answers) == (2, {"colour": response("red")})
    assert again.questions == {"colour": question("colour").request}


async def test_an_answered_task_gets_its_ttl_back_as_deadline(scene: Scene) -> None:
    claim = await scene.parked("colour", answer_within_ms=1000, ttl_ms=30_000)
    await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
    row = await scene.row(claim)
    assert row["deadline_at"] == row["created_at"] + timedelta(seconds=30)


async def test_a_partial_answer_is_recorded_and_the_rest_stays_open(scene: Scene) -> None:
    claim = await scene.parked("colour", "size", "shape")
    parked = await scene.row(claim)
    task = await scene.store.answer(OWNER, claim.task_id, {"size": response()})
    assert task is not None
    assert (task.status, task.version) == (Status.INPUT_REQUIRED, 3)
    assert task.updated_at > parked["updated_at"]
    assert (await scene.state(claim)).questions == (question("colour"), question("shape"))
    row = await scene.row(claim)
    assert (row["questions_open"], row["ready_at"], row["deadline_at"]) == (2, None, parked["deadline_at"])


async def test_partial_answers_add_up(scene: Scene) -> None:
    claim = await scene.parked("colour", "size", "shape")
    await scene.store.answer(OWNER, claim.task_id, {"size": response("1")})
    await scene.store.answer(OWNER, claim.task_id, {"colour": response("2"), "size": response("3")})
    task = await scene.store.answer(OWNER, claim.task_id, {"shape": response("4")})
    assert task is not None
    assert task.status is Status.WORKING
    answers = (await scene.claim(task)).answers
    assert answers == {"size": response("1"), "colour": response("2"), "shape": response("4")}


async def test_keys_that_were_never_asked_are_passed_over(scene: Scene) -> None:
    claim = await scene.parked("colour", "size")
    task = await scene.store.answer(OWNER, claim.task_id, {"age": response(), "colour": response(), "Size": response()})
    assert task is not None
    assert (await scene.row(claim))["questions_open"] == 1
    assert [a["key"] for a in await scene.children(claim, "task_input_responses")] == ["colour"]


@pytest.mark.parametrize("keys", [[], ["age"], ["colour"], ["age", "colour"]])
async def test_an_answer_with_nothing_new_changes_nothing(scene: Scene, keys: list[str]) -> None:
    claim = await scene.parked("colour", "size")
    await scene.store.answer(OWNER, claim.task_id, {"colour": response("first")})
    before = await scene.everything(claim)
    assert await scene.store.answer(OWNER, claim.task_id, {key: response("second") for key in keys}) is None
    assert await scene.everything(claim) == before


async def test_an_answer_to_a_task_that_is_not_parked_changes_nothing(scene: Scene) -> None:
    async def late_answer() -> None:
        before = await scene.everything(claim)
        assert await scene.store.answer(OWNER, claim.task_id, {"colour": response("late")}) is None
        assert await scene.everything(claim) == before

    claim = await scene.parked("colour")
    task = await scene.store.answer(OWNER, claim.task_id, {"colour": response()})
    assert task is not None
    await late_answer()
    second = await scene.claim(task)
    await late_answer()
    await scene.store.finish(second, RESULT)
    await late_answer()


@pytest.mark.requirement("R27")
async def test_a_key_of_an_earlier_round_is_no_answer_to_a_later_one(scene: Scene) -> None:
    claim = await scene.parked("colour")
    task = await scene.store.answer(OWNER, claim.task_id, {"colour": response("red")})
    assert task is not None
    second = await scene.claim(task)
    await scene.store.ask(second, [question("size")])
    assert (await scene.state(claim)).questions == (question("size"),)
    assert await scene.store.answer(OWNER, claim.task_id, {"colour": response("blue")}) is None
    task = await scene.store.answer(OWNER, claim.task_id, {"size": response("big"), "colour": response("blue")})
    assert task is not None
    third = await scene.claim(task)
    assert (third.epoch, third.answers) == (3, {"colour": response("red"), "size": response("big")})


async def test_asking_with_a_cancel_pending_cancels_and_asks_nothing(scene: Scene) -> None:
    claim = await scene.stopping(retention_ms=1000)
    task = await scene.store.ask(claim, [question("colour")])
    assert (task.status, task.status_message, task.version) == (Status.CANCELLED, None, 2)
    assert await scene.children(claim, "task_input_requests") == []
    row = await scene.row(claim)
    assert (row["questions_open"], row["worker_id"], row["deadline_at"]) == (0, None, None)
    assert row["finished_at"] == row["updated_at"]
    assert row["expires_at"] == row["finished_at"] + timedelta(seconds=1)
    (attempt,) = await scene.children(claim, "task_attempts")
    assert (attempt["epoch"], attempt["ended"], attempt["worker_id"]) == (1, "cancelled", claim.worker_id)


async def test_an_attempt_that_asked_has_ended_and_writes_nothing_more(scene: Scene) -> None:
    claim = await scene.parked("colour")
    before = await scene.everything(claim)
    with pytest.raises(StaleAttempt):
        await scene.store.finish(claim, RESULT)
    with pytest.raises(StaleAttempt):
        await scene.store.status(claim, "still here")
    assert await scene.everything(claim) == before
