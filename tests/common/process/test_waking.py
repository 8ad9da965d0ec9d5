"""Wake-ups that are put off: to the end, once each, in their order, on one thread alone."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable

import pytest

from common.process.waking import put_off, waking_last
from common.transport.signal import Signal


def calls_of(told: list[str], *names: str) -> list[Callable[[], None]]:
    """Wake-ups that tell their names."""

    def one(name: str) -> Callable[[], None]:
        return lambda: told.append(name)

    return [one(name) for name in names]


def test_each_is_called_once_behind_all() -> None:
    told: list[str] = []
    first, second = calls_of(told, "first", "second")
    with waking_last():
        assert all(put_off(wake) for wake in (first, second, first))
        with waking_last():  # one inside another ends nothing
            assert put_off(second)
        assert told == []
    assert told == ["first", "second"]
    assert not put_off(first)
    assert told == ["first", "second"]


def test_an_exception_wakes_too() -> None:
    told: list[str] = []
    (wake,) = calls_of(told, "woken")
    with pytest.raises(ValueError, match="inside"), waking_last():
        assert put_off(wake)
        raise ValueError("inside")
    assert told == ["woken"]
    assert not put_off(wake)


def test_a_signal_is_given_at_the_end_and_by_other_threads_at_once() -> None:
    signal = Signal()

    def given() -> bool:
        return bool(select.select([signal.fileno()], [], [], 0)[0])

    with waking_last():
        signal.give()
        signal.give()
        assert not given()
    assert given()
    signal.take(given())
    signal.lower()
    with waking_last():
        signal.give()
        other = threading.Thread(target=signal.give)
        other.start()
        other.join()
        assert given()
        signal.take(given())
        signal.lower()  # the thread has slept again meanwhile
    assert given()
    signal.take(given())
    assert not given()
    signal.close()
