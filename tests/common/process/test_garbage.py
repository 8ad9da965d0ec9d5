"""The collector of garbage goes on behind imports, also those that fail, and looks at nothing that was there."""

from __future__ import annotations

import gc

import pytest

from common.process.machine import importing, keep_loaded


class Loop:
    """One that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


def test_the_collector_goes_on_behind_imports() -> None:
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), importing():
        raise ImportError
    assert gc.isenabled()


def test_what_is_there_is_not_looked_at_again() -> None:
    kept = Loop()
    with importing():
        imported = Loop()
    assert not {id(kept), id(imported)} & set(map(id, gc.get_objects()))
    loaded = Loop()
    assert any(each is loaded for each in gc.get_objects())
    keep_loaded()
    assert not any(each is loaded for each in gc.get_objects())
