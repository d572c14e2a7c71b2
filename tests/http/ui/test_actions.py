"""Cancelling and retrying, each after asking once more."""

from __future__ import annotations

from structlog.testing import capture_logs

from app.storage.listing import Activity, TaskFilter
from tests.http.ui.desks import Reader
from tests.storage.scene import Scene


async def test_a_task_is_cancelled_only_after_asking_once_more(reader: Reader, scene: Scene) -> None:
    task = await scene.queued()
    path = f"/tasks/{task.task_id}/cancel"
    asks = await reader.get(path)
    assert "Cancel weigh ?" in asks.words
    assert (await scene.state(task)).task.status == "working"
    with capture_logs() as logs:
        done = await reader.post(path, token=asks.token)
    assert (done.path, "The task was cancelled" in done.words) == (f"/ui/tasks/{task.task_id}?said=cancelled", True)
    assert (await scene.state(task)).task.status == "cancelled"
    assert [(entry["event"], entry["tool"]) for entry in logs] == [("cancelled by operator", "weigh")]
    assert str(task.task_id) not in str(logs)


async def test_a_task_that_runs_is_told_to_stop(reader: Reader, scene: Scene) -> None:
    claim = await scene.running()
    done = await reader.act(f"/tasks/{claim.task_id}/cancel")
    assert done.path.endswith("said=stopping")
    assert (await scene.state(claim)).task.cancel_requested
    assert f"/ui/tasks/{claim.task_id}/cancel" not in done.links


async def test_a_task_that_ended_is_made_again_and_stays_as_it_is(reader: Reader, scene: Scene) -> None:
    claim = await scene.failed()
    done = await reader.act(f"/tasks/{claim.task_id}/retry")
    assert done.path.endswith("said=retried")
    assert "This is the new task" in done.words
    assert str(claim.task_id) not in done.html
    (new,) = await reader.operator.tasks(TaskFilter(activity=(Activity.QUEUED,)), limit=5)
    assert (new.tool, new.owner, str(new.task_id) in done.path) == (claim.task.tool, claim.task.owner, True)
    assert (await scene.state(claim)).task.status == "failed"


async def test_what_cannot_be_done_any_more_is_said_so(reader: Reader, scene: Scene) -> None:
    live, ended = await scene.queued(), await scene.completed()
    for task, action in ((live, "retry"), (ended, "cancel")):
        before = await scene.everything(task)
        path = f"/tasks/{task.task_id}"
        assert (await reader.get(f"{path}/{action}")).path == f"/ui{path}?said=ended"
        token = (await reader.get(path)).token
        assert (await reader.post(f"{path}/{action}", token=token)).path == f"/ui{path}?said=ended"
        assert await scene.everything(task) == before


async def test_there_are_no_other_actions(reader: Reader, scene: Scene) -> None:
    task = await scene.queued()
    token = (await reader.get("/")).token
    for path in (f"/tasks/{task.task_id}/purge", "/tasks/nonsense/cancel", f"/tasks/{task.task_id}"):
        assert (await reader.post(path, token=token)).status in (404, 405)
