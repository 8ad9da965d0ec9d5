"""Layers come in cyclic order from a thread that reads ahead; a pass that was given up begins anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from common.engine.model.errors import ModelError, Preempted
from common.engine.model.files import weight_files
from common.engine.streaming import BUFFERS, CHUNK_BYTES, Proceed, Wanted, WeightFiles, WeightStore

LAYERS, NUMBERS = 5, 3 * CHUNK_BYTES // 4
BYTES = 4 * NUMBERS  # of a layer: three chunks


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Nothing:
    """There is nothing useful to do, however often one asks."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        """`then` is called whenever one has asked."""
        self.times = 0
        self._then = then

    def __call__(self) -> bool:
        self.times += 1
        self._then()
        return False


class Opened:
    """A store over a file whose layer i is full of the number i."""

    def __init__(self, folder: Path, bytes_per_second: float | None = None, read_ahead: bool = True) -> None:
        self.path = folder / "model.safetensors"
        if not self.path.exists():
            save_file({str(layer): torch.full((NUMBERS,), float(layer)) for layer in range(LAYERS)}, self.path)
        self.files = WeightFiles(weight_files(folder))
        self.buffers = [torch.zeros(NUMBERS) for _ in range(BUFFERS)]
        wanted = [[[(self.files.places[str(layer)], buffer)] for buffer in self.buffers] for layer in range(LAYERS)]
        self.store = WeightStore(self.files, wanted, bytes_per_second, read_ahead)

    def take(self, layer: int) -> Tensor:
        return self.buffers[self.store.take(layer)]

    def pass_over(self, layers: range = range(LAYERS)) -> None:
        for layer in layers:
            assert bool((self.take(layer) == layer).all())
            self.store.give_back()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layers")


@pytest.fixture
def opened(folder: Path) -> Iterator[Opened]:
    made = Opened(folder)
    yield made
    made.store.close()


class TestOrder:
    def test_passes_and_what_they_read(self, opened: Opened) -> None:
        for _ in range(3):
            opened.pass_over()
        until(lambda: opened.store.counters.layers == 3 * LAYERS + BUFFERS)  # those of the next pass
        assert opened.store.counters.dropped == 0
        # A layer shares its first and last block with its neighbours.
        assert 0 <= opened.files.counters.bytes - opened.store.counters.layers * BYTES < 40 * 4096

    def test_buffers_are_filled_while_one_is_held(self, opened: Opened) -> None:
        held = opened.take(0)
        until(lambda: opened.store.counters.layers == 2)
        assert bool((held == 0).all())
        opened.store.give_back()
        until(lambda: opened.store.counters.layers == 3)
        opened.pass_over(range(1, LAYERS))

    @settings(max_examples=15, deadline=None)
    @given(stops=st.lists(st.integers(0, LAYERS), max_size=6))
    def test_passes_that_are_given_up_anywhere(self, folder: Path, stops: list[int]) -> None:
        opened = Opened(folder)
        for stop in stops:
            opened.pass_over(range(stop))
            if stop < LAYERS:
                opened.take(stop)
                opened.store.rewind()
        opened.pass_over()
        opened.store.close()
        assert opened.store.counters.dropped <= BUFFERS * len(stops)

    def test_another_layer_than_comes_next(self, opened: Opened) -> None:
        opened.pass_over(range(1))
        opened.pass_over(range(3, 5))
        opened.pass_over(range(2))

    def test_without_reading_ahead_nothing_is_read_that_is_not_asked_for(self, folder: Path) -> None:
        opened = Opened(folder, read_ahead=False)
        for layer in range(LAYERS):
            assert opened.store.counters.layers == layer
            opened.pass_over(range(layer, layer + 1))
        assert opened.store.counters.waited > 0
        opened.store.close()
        assert opened.store.counters.layers == LAYERS

    def test_mutant_that_goes_on_after_a_pass_that_was_given_up(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(WeightStore, "_seek", lambda store, layer: None)
        opened.pass_over(range(2))
        opened.store.rewind()
        with pytest.raises(AssertionError):
            opened.pass_over()


class TestWaiting:
    """A disk of 30 MB/s needs a tenth of a second for a layer."""

    SPEED = 30e6

    @pytest.fixture
    def may_read(self, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
        """Nothing is read before it is set."""
        may, read = threading.Event(), WeightFiles.read

        def late(files: WeightFiles, wanted: Wanted, proceed: Proceed) -> bool:
            assert may.wait(60)
            return read(files, wanted, proceed)

        monkeypatch.setattr(WeightFiles, "read", late)
        return may

    def test_the_speed_is_that_of_the_slower_disk(self, folder: Path) -> None:
        started, asking = time.perf_counter(), 0.0
        opened = Opened(folder, self.SPEED)
        for layer in range(3):
            begun = time.perf_counter()
            opened.take(layer)
            asking += time.perf_counter() - begun
            opened.store.give_back()
        lasted, least = time.perf_counter() - started, 3 * BYTES / self.SPEED
        assert lasted >= least
        # What a busy machine took between two layers was not waited.
        assert asking - 0.1 * least <= opened.store.counters.waited <= asking
        opened.store.close()

    def test_something_useful_is_done_meanwhile(self, folder: Path, may_read: threading.Event) -> None:
        opened = Opened(folder)
        threads, useful = [], 0.0

        def work() -> bool:
            nonlocal useful
            begun = time.perf_counter()
            threads.append(threading.current_thread())
            time.sleep(0.01)
            if len(threads) == 5:
                may_read.set()
            useful += time.perf_counter() - begun
            return True

        started = time.perf_counter()
        opened.store.take(0, None, work)
        assert len(threads) >= 5 and set(threads) == {threading.current_thread()}
        assert opened.store.counters.waited <= time.perf_counter() - started - useful
        opened.store.close()

    def test_it_is_asked_once_when_there_is_nothing_to_do(self, folder: Path, may_read: threading.Event) -> None:
        opened = Opened(folder, self.SPEED)
        asked = Nothing(may_read.set)
        opened.store.take(0, None, asked)
        assert asked.times == 1
        opened.store.give_back()
        opened.store.close()

    def test_it_is_not_asked_for_a_layer_that_is_there(self, opened: Opened) -> None:
        until(lambda: opened.store.counters.layers == BUFFERS)
        asked = Nothing()
        opened.store.take(0, None, asked)
        assert asked.times == 0

    @pytest.mark.parametrize("useful", [False, True])
    def test_an_interrupt_is_noticed_at_once(self, folder: Path, useful: bool) -> None:
        opened = Opened(folder, 1e5)  # half a minute for a layer
        started, polls = time.perf_counter(), iter([False, False, True])
        with pytest.raises(Preempted):
            opened.store.take(0, lambda: next(polls), (lambda: True) if useful else None)
        opened.store.rewind()
        opened.store.close()
        assert time.perf_counter() - started < 15.0

    def test_what_is_not_wanted_any_more_is_not_read_to_its_end(self, folder: Path) -> None:
        opened = Opened(folder, 1e5)  # half a minute for a layer
        until(lambda: opened.files.counters.reads >= 1)
        with opened.store._changed:
            opened.store._seek(3)
            opened.store._seconds_per_byte = opened.store._free_at = 0.0  # the test need not last so long
        assert bool((opened.take(3) == 3).all())
        assert opened.store.counters.dropped == 0
        opened.store.close()


class TestFailure:
    def test_what_fails_is_told_and_tried_again(self, tmp_path: Path) -> None:
        opened = Opened(tmp_path)
        opened.pass_over()
        whole = opened.path.read_bytes()
        with opened.path.open("r+b") as file:
            file.truncate(len(whole) // 2)
        for _ in range(2):
            opened.pass_over(range(2))  # what is there is given, whatever becomes of what is read ahead
            with pytest.raises(ModelError, match=r"model\.safetensors: became shorter"):
                opened.take(2)
            opened.store.rewind()
        with opened.path.open("r+b") as file:
            file.write(whole)
        opened.store.rewind()
        opened.pass_over()
        opened.store.close()

    def test_closing_ends_the_thread(self, folder: Path) -> None:
        before = threading.active_count()
        opened = Opened(folder, 1e3)
        assert threading.active_count() == before + 1
        opened.store.close()
        assert threading.active_count() == before
        with pytest.raises(RuntimeError, match="closed"):
            opened.take(0)
