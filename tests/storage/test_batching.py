"""Calls that go together: when they do, and that none of them suffers for another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar

import pytest

from app.errors import StoreUnavailable
from app.storage.batching import CROWD, SLOW_SECONDS, Batches
from tests.support.waiting import eventually

LANES = 2
WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


class Work:
    """Doubles numbers, and waits where it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.for_whom: set[str] = set()
        self.last = asyncio.Event()

    def let_one_go(self) -> None:
        """Let the batch that came last go on."""
        self.last.set()

    async def __call__(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(numbers))
        self.for_whom.add(WHO.get())
        self.last = asyncio.Event()
        await asyncio.wait(
            [asyncio.create_task(gate.wait()) for gate in (self.gate, self.last)], return_when=asyncio.FIRST_COMPLETED
        )
        if 13 in numbers:
            raise ValueError("13 is nothing")
        if 99 in numbers:
            raise StoreUnavailable("away")
        return [LookupError("7 is not here") if number == 7 else number * 2 for number in numbers]


@pytest.fixture
async def work() -> Work:
    return Work()


async def busy(work: Work, batches: Batches[int, int]) -> asyncio.Task[int]:
    """Let a call be under way."""
    work.gate.clear()
    call = asyncio.create_task(batches.put(0))
    await turns()
    assert work.batches == [[0]]
    return call


async def turns() -> None:
    """Let those that can go on do so."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_call_on_an_idle_process_is_done_at_once_and_alone(work: Work) -> None:
    batches = Batches(work)
    assert [await batches.put(number) for number in (1, 2)] == [2, 4]
    assert work.batches == [[1], [2]]


@pytest.mark.parametrize("lanes", [1, LANES])
async def test_calls_that_arrive_while_one_is_under_way_go_together_and_each_gets_its_own(
    work: Work, lanes: int
) -> None:
    batches = Batches(work, lanes=lanes)
    first = await busy(work, batches)
    others = [asyncio.create_task(batches.put(number)) for number in (1, 2, 3)]
    await turns()
    work.gate.set()
    assert await asyncio.gather(first, *others) == [0, 2, 4, 6]
    assert work.batches == [[0], [1, 2, 3]]


@pytest.mark.parametrize("lanes", [1, LANES])
async def test_a_crowd_does_not_wait_for_what_is_under_way_where_there_is_another_lane(work: Work, lanes: int) -> None:
    batches = Batches(work, lanes=lanes)
    first = await busy(work, batches)
    others = [asyncio.create_task(batches.put(1)) for _ in range(CROWD + 3)]
    await turns()
    assert work.batches[1:] == [[1] * (CROWD + 3)] * (lanes - 1)
    work.gate.set()
    assert await asyncio.gather(first, *others) == [0] + [2] * (CROWD + 3)


async def test_what_is_under_way_for_long_holds_nobody_up_though_nobody_comes_after(work: Work) -> None:
    batches = Batches(work, lanes=LANES)
    first = await busy(work, batches)
    second = asyncio.create_task(batches.put(1))

    async def sent() -> bool:
        return work.batches == [[0], [1]]

    await eventually(sent)
    work.gate.set()
    assert [await call for call in (first, second)] == [0, 2]


async def test_what_another_lane_has_done_meanwhile_does_not_make_it_seem_quick(work: Work) -> None:
    batches = Batches(work, lanes=LANES)
    first = await busy(work, batches)
    (lane,) = batches._lanes
    batches._lanes[lane] -= SLOW_SECONDS
    for number in (1, 2):
        call = asyncio.create_task(batches.put(number))
        await turns()
        assert work.batches[-1] == [number]
        work.let_one_go()
        assert await call == 2 * number
    work.gate.set()
    assert await first == 0


async def test_calls_of_one_moment_after_a_long_rest_go_together(work: Work) -> None:
    batches = Batches(work, lanes=LANES)
    assert await batches.put(1) == 2
    assert await asyncio.gather(*(batches.put(2) for _ in range(3))) == [4, 4, 4]
    assert work.batches == [[1], [2, 2, 2]]
    assert batches._lanes == {}


async def test_a_batch_holds_no_more_than_it_may_and_a_call_that_is_larger_goes_alone(work: Work) -> None:
    batches = Batches(work, most=10, size=lambda number: number)
    assert await asyncio.gather(*(batches.put(number) for number in (4, 5, 6, 20, 1))) == [8, 10, 12, 40, 2]
    assert sorted(work.batches) == [[1], [4, 5], [6], [20]]


async def test_what_fails_for_one_call_alone_is_told_to_that_one(work: Work) -> None:
    batches = Batches(work)
    one, other = await asyncio.gather(batches.put(7), batches.put(1), return_exceptions=True)
    assert (type(one), other) == (LookupError, 2)
    assert work.batches == [[7, 1]]


async def test_a_batch_that_fails_as_a_whole_is_done_one_by_one(work: Work) -> None:
    batches = Batches(work)
    came = await asyncio.gather(*map(batches.put, (1, 13, 2)), return_exceptions=True)
    assert (came[0], type(came[1]), came[2]) == (2, ValueError, 4)
    assert work.batches == [[1, 13, 2], [1], [13], [2]]


async def test_a_database_that_is_away_is_not_asked_again_for_each_call(work: Work) -> None:
    batches = Batches(work)
    came = await asyncio.gather(*map(batches.put, (1, 99, 2)), return_exceptions=True)
    assert [type(each) for each in came] == [StoreUnavailable] * 3
    assert work.batches == [[1, 99, 2]]


async def test_a_caller_that_is_cancelled_takes_nothing_back_and_harms_nobody(work: Work) -> None:
    batches = Batches(work)
    first = await busy(work, batches)
    leaving, staying = (asyncio.create_task(batches.put(number)) for number in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    leaving.cancel()
    work.gate.set()
    assert await staying == 4
    assert work.batches == [[0], [1, 2]]
    await asyncio.wait({first, leaving})
    assert leaving.cancelled()
    assert await batches.put(3) == 6


async def test_what_changes_nothing_is_not_done_for_a_caller_that_has_left(work: Work) -> None:
    batches = Batches(work, wanted_only=True)
    first = await busy(work, batches)
    leaving, staying = (asyncio.create_task(batches.put(number)) for number in (1, 2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.sleep(0)
    work.gate.set()
    assert [await call for call in (first, staying)] == [0, 4]
    assert work.batches == [[0], [2]]


async def test_one_who_does_not_wait_is_told_what_came_and_cannot_harm_the_others(work: Work) -> None:
    batches = Batches(work)
    told: list[object] = []
    faults: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

    def fail(_: object) -> None:
        raise RuntimeError("it fell over")

    for number, tell in ((1, told.append), (2, fail), (7, told.append)):
        batches.put_soon(number, tell)
    assert await batches.put(3) == 6
    assert (told[0], type(told[1])) == (2, LookupError)
    assert [str(fault["exception"]) for fault in faults] == ["it fell over"]
    assert work.batches == [[1, 2, 7, 3]]


async def test_calls_that_come_one_right_after_the_other_are_all_done(work: Work) -> None:
    batches = Batches(work, lanes=LANES)

    async def one_after_the_other(number: int) -> int:
        return sum([await batches.put(number) for _ in range(50)])

    assert await asyncio.wait_for(asyncio.gather(*map(one_after_the_other, range(5))), 10) == [0, 100, 200, 300, 400]


async def test_a_batch_is_nobodys_own(work: Work) -> None:
    batches = Batches(work)
    token = WHO.set("alice")
    await batches.put(1)
    WHO.reset(token)
    assert work.for_whom == {"nobody"}
