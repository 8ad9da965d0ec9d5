"""Hooks before and after every decoder layer of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from common.engine.model.errors import Preempted
from common.engine.model.streaming import StreamedLayers
from common.engine.weights.store import Interrupt, Waiting


class LayerGate:
    """Polls a pass's `interrupt` before every layer, and lets streamed layers in when their weights are there."""

    def __init__(self, layers: Sequence[nn.Module], streamed: StreamedLayers | None) -> None:
        self._streamed = streamed
        self._interrupt: Interrupt | None = None
        self._waiting: Waiting | None = None
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(self._poll)
            if streamed is not None and index >= streamed.first:
                layer.register_forward_pre_hook(self._entering(streamed, index))
                layer.register_forward_hook(self._left)

    @contextmanager
    def passing(self, interrupt: Interrupt | None = None, waiting: Waiting | None = None) -> Iterator[None]:
        """One pass through all layers."""
        self._interrupt, self._waiting = interrupt, waiting
        try:
            yield
        except BaseException:
            if self._streamed is not None:
                self._streamed.rewind()
            raise
        finally:
            self._interrupt = self._waiting = None

    def _poll(self, module: nn.Module, arguments: Any) -> None:
        if self._interrupt is not None and self._interrupt():
            raise Preempted

    def _entering(self, streamed: StreamedLayers, index: int) -> Any:
        def enter(module: nn.Module, arguments: Any) -> None:
            streamed.enter(index, self._interrupt, self._waiting)

        return enter

    def _left(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if self._streamed is not None:
            self._streamed.leave()
