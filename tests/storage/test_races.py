"""Two at the same moment: exactly one of them wins, the other one learns it, and nothing is done twice.

A third connection holds the row until both are seen to wait for it; then they run on in the order in which they came.
"""

from __future__ import annotations

from typing import Any

from app.domain.task import Claim, Json, Status, Task
from app.errors import StaleAttempt
from tests.storage.racing import Race
from tests.storage.scene import ERROR, OWNER, RESULT, Scene, attempt_of, question, response


async def status(scene: Scene, task: Task | Claim) -> Status:
    return (await scene.state(task)).task.status


# -- answers ----------------------------------------------------------------------------------------------------------


async def test_of_two_answers_to_the_same_key_one_is_recorded_and_the_task_is_ready_once(
    scene: Scene, race: Race
) -> None:
    claim = await scene.parked("colour")
    answers = [scene.store.answer(OWNER, claim.task_id, {"colour": response(word)}) for word in ("red", "blue")]
    first, second = await race.at_once(claim, *answers)
    assert (first.status, first.version, second) == (Status.WORKING, 3, None)
    row = await scene.row(claim)
    assert (row["questions_open"], row["ready_at"], row["version"]) == (0, first.updated_at, 3)
    assert (await scene.claim(first)).answers == {"colour": response("red")}


async def test_two_answers_to_two_keys_are_both_recorded_and_the_task_is_ready(scene: Scene, race: Race) -> None:
    claim = await scene.parked("colour", "size")
    answers = [scene.store.answer(OWNER, claim.task_id, {key: response(key)}) for key in ("size", "colour")]
    first, second = await race.at_once(claim, *answers)
    assert (first.status, first.version) == (Status.INPUT_REQUIRED, 3)
    assert (second.status, second.version) == (Status.WORKING, 4)
    assert second.updated_at > first.updated_at
    row = await scene.row(claim)
    assert (row["questions_open"], row["ready_at"]) == (0, second.updated_at)
    assert (await scene.claim(second)).answers == {"colour": response("colour"), "size": response("size")}


async def test_answers_that_overlap_count_each_key_once(scene: Scene, race: Race) -> None:
    claim = await scene.parked("a", "b", "c")
    mine, yours = ({key: response(who) for key in keys} for who, keys in (("mine", "ab"), ("yours", "bca")))
    first, second = await race.at_once(
        claim, *(scene.store.answer(OWNER, claim.task_id, answers) for answers in (mine, yours))
    )
    assert (first.status, second.status) == (Status.INPUT_REQUIRED, Status.WORKING)
    assert (await scene.claim(second)).answers == {"a": response("mine"), "b": response("mine"), "c": response("yours")}


async def test_five_answers_to_three_keys_leave_nothing_open(scene: Scene, race: Race) -> None:
    claim = await scene.parked("a", "b", "c")
    keys = ("a", "b", "a", "c", "b")
    said = await race.at_once(claim, *(scene.store.answer(OWNER, claim.task_id, {key: response()}) for key in keys))
    assert [task and task.version for task in said] == [3, 4, None, 5, None]
    assert (await scene.row(claim))["questions_open"] == 0
    assert await status(scene, claim) is Status.WORKING


# -- cancel, against whatever waits for the row -----------------------------------------------------------------------


async def test_a_cancel_after_an_answer_cancels_what_waits_again(scene: Scene, race: Race) -> None:
    claim = await scene.parked("colour")
    answer, cancel = answering(scene, claim), scene.store.cancel(OWNER, claim.task_id)
    answered, cancelled = await race.at_once(claim, answer, cancel)
    assert (answered.status, cancelled.status) == (Status.WORKING, Status.CANCELLED)
    assert await scene.store.claim(scene.worker_id, [claim.task.tool], 1) == []


async def test_an_answer_after_a_cancel_is_not_recorded(scene: Scene, race: Race) -> None:
    claim = await scene.parked("colour")
    cancel, answer = scene.store.cancel(OWNER, claim.task_id), answering(scene, claim)
    cancelled, answered = await race.at_once(claim, cancel, answer)
    assert (cancelled.status, answered) == (Status.CANCELLED, None)
    assert await scene.children(claim, "task_input_responses") == []


def answering(scene: Scene, claim: Claim) -> Any:
    return scene.store.answer(OWNER, claim.task_id, {"colour": response()})


async def test_a_finish_and_a_cancel_complete_the_task_in_either_order(scene: Scene, race: Race) -> None:
    for turn in (1, -1):
        claim = await scene.running()
        calls = [scene.store.finish(claim, RESULT), scene.store.cancel(OWNER, claim.task_id)][::turn]
        finished, cancelled = (await race.at_once(claim, *calls))[::turn]
        assert finished.status is Status.COMPLETED
        assert cancelled is None if turn == 1 else cancelled.cancel_requested
        assert (await scene.state(claim)).result == RESULT


async def test_a_question_and_a_cancel_cancel_the_task_in_either_order(scene: Scene, race: Race) -> None:
    for turn, asked in ((1, 1), (-1, 0)):
        claim = await scene.running()
        calls = [scene.store.ask(claim, [question("colour")]), scene.store.cancel(OWNER, claim.task_id)][::turn]
        await race.at_once(claim, *calls)
        assert await status(scene, claim) is Status.CANCELLED
        assert len(await scene.children(claim, "task_input_requests")) == asked
        assert (await scene.row(claim))["questions_open"] == 0


async def test_a_release_and_a_cancel_cancel_the_task_in_either_order(scene: Scene, race: Race) -> None:
    for turn, ended in ((1, "released"), (-1, "cancelled")):
        claim = await scene.running()
        calls = [scene.store.release(claim.worker_id, attempt_of(claim)), scene.store.cancel(OWNER, claim.task_id)]
        await race.at_once(claim, *calls[::turn])
        assert await status(scene, claim) is Status.CANCELLED
        assert [a["ended"] for a in await scene.children(claim, "task_attempts")] == [ended]


async def test_two_cancels_cancel_once(scene: Scene, race: Race) -> None:
    task = await scene.queued()
    first, second = await race.at_once(task, *(scene.store.cancel(OWNER, task.task_id) for _ in range(2)))
    assert (first.status, first.version, second) == (Status.CANCELLED, 2, None)


# -- one attempt against itself, and against its end ------------------------------------------------------------------


async def test_what_one_attempt_writes_first_stands(scene: Scene, race: Race) -> None:
    for turn, expected in ((1, Status.COMPLETED), (-1, Status.FAILED)):
        claim = await scene.running()
        calls = [scene.store.finish(claim, RESULT), scene.store.fail(claim, ERROR, "It broke", internal="why")]
        said = await race.at_once(claim, *calls[::turn])
        assert [task.status for task in said] == [expected] * 2
        assert len(await scene.children(claim, "task_outcomes")) == 1


async def test_the_same_questions_at_the_same_moment_are_asked_once(scene: Scene, race: Race) -> None:
    claim = await scene.running()
    first, second = await race.at_once(claim, *(scene.store.ask(claim, [question("colour")]) for _ in range(2)))
    assert first == second
    assert (await scene.row(claim))["questions_open"] == 1


async def test_the_same_step_at_the_same_moment_has_one_value(scene: Scene, race: Race) -> None:
    claim = await scene.running()
    values = (scene.store.step(claim, "fetch", Json(text)) for text in ("1", "2"))
    assert await race.at_once(claim, *values) == ["1", "1"]


async def test_a_release_and_a_finish_end_the_attempt_once(scene: Scene, race: Race) -> None:
    claim = await scene.running()
    finish, release = scene.store.finish(claim, RESULT), scene.store.release(claim.worker_id, attempt_of(claim))
    finished, released = await race.at_once(claim, finish, release)
    assert (finished.status, released) == (Status.COMPLETED, [])

    claim = await scene.running()
    finish, release = scene.store.finish(claim, RESULT), scene.store.release(claim.worker_id, attempt_of(claim))
    (released, finished) = await race.at_once(claim, release, finish)
    assert isinstance(finished, StaleAttempt)
    assert (released[0].status, await status(scene, claim)) == (Status.WORKING, Status.WORKING)
    assert await scene.children(claim, "task_outcomes") == []


async def test_a_step_that_comes_after_a_release_leaves_no_row(scene: Scene, race: Race) -> None:
    claim = await scene.running()
    release, step = scene.store.release(claim.worker_id, attempt_of(claim)), scene.store.step(claim, "a", Json("1"))
    _, stepped = await race.at_once(claim, release, step)
    assert isinstance(stepped, StaleAttempt)
    assert await scene.children(claim, "task_steps") == []
