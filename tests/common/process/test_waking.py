"""Wake-ups that are put off: to the end, once each, in their order, on one thread alone."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from common.process.waking import put_off, waking_last


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


def test_other_threads_are_not_concerned() -> None:
    found: list[bool] = []
    with waking_last():
        other = threading.Thread(target=lambda: found.append(put_off(lambda: None)))
        other.start()
        other.join()
    assert found == [False]
