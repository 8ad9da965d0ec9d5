"""Layers that are read again in every pass, into two buffers that a thread keeps full."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.engine.model.errors import Preempted
from common.engine.weights.file import Wanted, WeightFiles
from common.engine.weights.plan import BUFFERS

Interrupt = Callable[[], bool]
Waiting = Callable[[], bool]  # does something useful for a moment; False if there is nothing to do

_PATIENCE = 0.005  # seconds between two looks at an interrupt while there is nothing else to do


@dataclass(slots=True)
class StoreCounters:
    """Costs of streaming so far."""

    layers: int = 0  # read to the end
    dropped: int = 0  # of them, those that a pass that was given up left unused
    waited: float = 0.0  # seconds in which a pass had nothing to do but wait for a layer


class WeightStore:
    """Layers in cyclic order: the next ones are read while one is computed with, and between passes.

    One thread takes layers and gives them back. `counters` are for anybody to read.
    """

    def __init__(
        self,
        files: WeightFiles,
        layers: Sequence[Sequence[Wanted]],
        bytes_per_second: float | None = None,
        read_ahead: bool = True,
    ) -> None:
        """`layers` say, for each layer and for each of the buffers, what is to be read to where."""
        self.counters = StoreCounters()
        self._files, self._layers = files, layers
        self._read_ahead = read_ahead
        self._seconds_per_byte = 0.0 if bytes_per_second is None else 1 / bytes_per_second
        self._free_at = 0.0  # when a disk of that speed would be done with what was read
        # Everything below belongs to whoever holds the condition.
        self._changed = threading.Condition()
        self._free = list(range(BUFFERS))
        self._full: deque[tuple[int, int]] = deque()  # layer, buffer
        self._held: int | None = None
        self._next = 0  # the layer that is being read, or will be
        self._course = 0  # counts changes of the order; what was begun before one is not wanted any more
        self._asked = False
        self._failure: Exception | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="weights", daemon=True)
        self._thread.start()

    def take(self, layer: int, interrupt: Interrupt | None = None, waiting: Waiting | None = None) -> int:
        """The number of the buffer that holds `layer`, until it is given back.

        While it is not there yet, `waiting` is called until it returns False. Raises `Preempted` when `interrupt()`
        is true meanwhile, and `ModelError` if the layer can't be read.
        """
        started, useful = time.perf_counter(), 0.0
        with self._changed:
            self._seek(layer)
            self._asked, self._failure = True, None  # what failed when nobody waited for it is tried again
            self._changed.notify_all()
        try:
            while (buffer := self._taken(None if waiting is not None else _PATIENCE)) is None:
                if interrupt is not None and interrupt():
                    raise Preempted
                if waiting is not None:
                    begun = time.perf_counter()
                    waiting = waiting if waiting() else None
                    useful += time.perf_counter() - begun
        finally:
            with self._changed:
                self._asked = False
            self.counters.waited += time.perf_counter() - started - useful
        return buffer

    def give_back(self) -> None:
        """Let the buffer that is held be filled again."""
        with self._changed:
            if self._held is not None:
                self._free.append(self._held)
                self._held = None
                self._changed.notify_all()

    def rewind(self) -> None:
        """Begin with the first layer again: the pass was given up."""
        self.give_back()
        with self._changed:
            self._seek(0)

    def close(self) -> None:
        """End the thread and close the files."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._files.close()

    def _taken(self, patience: float | None) -> int | None:
        """The buffer of the layer that comes next, if it is there within `patience` seconds (None: if it is now)."""
        with self._changed:
            if patience is not None:
                self._changed.wait_for(lambda: self._full or self._failure, patience)
            if self._closing:
                raise RuntimeError("layers can't be taken from a store that was closed")
            if self._full:
                _, self._held = self._full.popleft()
                return self._held
            if self._failure is not None:
                failure, self._failure = self._failure, None
                self._changed.notify_all()  # the next pass tries again
                raise failure
            return None

    def _seek(self, layer: int) -> None:
        coming = self._full[0][0] if self._full else self._next
        if coming == layer:
            return
        self.counters.dropped += len(self._full)
        self._free += [buffer for _, buffer in self._full]
        self._full.clear()
        self._next, self._course, self._failure = layer, self._course + 1, None
        self._changed.notify_all()

    # --- the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._may_read())
                if self._closing:
                    return
                buffer, layer, course = self._free.pop(), self._next, self._course
            whole, failure = self._read(layer, buffer, course)
            with self._changed:
                self.counters.layers += whole
                if course != self._course or not whole:
                    self._free.append(buffer)
                    self.counters.dropped += whole
                    if course == self._course:
                        self._failure = failure
                else:
                    self._full.append((layer, buffer))
                    self._next = (layer + 1) % len(self._layers)
                self._changed.notify_all()

    def _may_read(self) -> bool:
        asked = self._read_ahead or (self._asked and not self._full)
        return bool(self._free) and self._failure is None and asked

    def _read(self, layer: int, buffer: int, course: int) -> tuple[bool, Exception | None]:
        # What a chunk took too long is made up for by the next ones, so that a layer takes the time that it should.
        self._free_at = max(self._free_at, time.perf_counter())
        try:
            return self._files.read(self._layers[layer][buffer], lambda size: self._go_on(size, course)), None
        except Exception as error:  # told to who takes the layer
            return False, error

    def _go_on(self, size: int, course: int) -> bool:
        """Take the time that a slower disk takes for `size` bytes; whether the rest is still wanted."""
        self._free_at += size * self._seconds_per_byte
        if (left := self._free_at - time.perf_counter()) > 0:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or course != self._course, left)
        return not self._closing and course == self._course
