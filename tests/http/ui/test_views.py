"""What the pages show."""

from __future__ import annotations

from tests.http.ui.desks import Reader
from tests.storage.scene import Scene


async def test_each_page_shows_what_there_is(reader: Reader, scene: Scene) -> None:
    waiting, running = await scene.parked(), await scene.running()
    failed = await scene.failed()
    overview = await reader.get("/")
    assert overview.status == 200
    for words in ("1 running", "1 waiting for answers", "1 failed in 24 hours", "It broke", "here :1"):
        assert words in overview.words
    tasks = await reader.get("/tasks")
    for claim in (waiting, running, failed):
        assert f"/ui/tasks/{claim.task_id}" in tasks.links
        task = await reader.get(f"/tasks/{claim.task_id}")
        assert (task.status, str(claim.task_id) in task.words) == (200, True)
    inbox = await reader.get("/inbox")
    assert "colour?" in inbox.words
    assert f"/ui/inbox/{waiting.task_id}?key=colour" in inbox.links
