"""Places for answers, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from device.http.errors import ApiError, stopping
from device.http.places import AnswerSlot, AnswerSlots


def in_loop(test: Callable[[], None]) -> None:
    """Run `test` on an event loop."""

    async def run() -> None:
        test()

    asyncio.run(run())


def reached(places: tuple[AnswerSlot, ...]) -> list[bool]:
    """The one whose turn it is."""
    waits = [place.reached() for place in places]
    states = []
    for wait in waits:
        try:
            wait.send(None)
        except StopIteration:
            states.append(True)
        else:
            states.append(False)
            wait.close()
    return states


def test_so_many_run_and_so_many_wait() -> None:
    def test() -> None:
        places = AnswerSlots(2, 3)
        taken = places.take(4)
        assert reached(taken) == [True, True, False, False]
        with pytest.raises(ApiError) as error:
            places.take(2)
        assert error.value.status == 429
        taken += places.take(1)
        taken[0].leave()
        taken[0].leave()
        assert reached(taken[1:]) == [True, True, False, False]

    in_loop(test)


def test_more_than_there_ever_are_is_no_matter_of_time() -> None:
    def test() -> None:
        with pytest.raises(ApiError) as error:
            AnswerSlots(2, 3).take(6)
        assert error.value.status == 400

    in_loop(test)


def test_who_leaves_the_line_makes_room_and_is_never_called() -> None:
    def test() -> None:
        places = AnswerSlots(1, 2)
        first, second, third = places.take(3)
        second.leave()
        (fourth,) = places.take(1)
        first.leave()
        assert reached((second, third, fourth)) == [False, True, False]

    in_loop(test)


def test_who_is_refused_is_told_why() -> None:
    def test() -> None:
        places = AnswerSlots(1, 1)
        first, second = places.take(2)
        second.refuse(stopping())
        with pytest.raises(ApiError, match="stopping"):
            reached((second,))
        assert reached((first, *places.take(1))) == [True, False]

    in_loop(test)
