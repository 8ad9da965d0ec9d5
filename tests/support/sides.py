"""Sides that live in one process: what is the same in all of them is made once.

A daemon loads an embedding model and measures its decode steps, a second of processor time each time. Neither depends
on the side, and sides that do so by themselves are what the tests of daemons start.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from common.daemon import side
from common.daemon import side as drafter
from common.daemon.profile import profiled_line
from common.daemon.side import SideRuntime
from common.engine.model.decoder import Decoder
from common.estimates.estimators import DecodeLine
from common.library.embedder import SentenceTransformerEmbedder

_embedder = cache(SentenceTransformerEmbedder)  # safe to use from several threads
_lines: dict[tuple[object, ...], DecodeLine] = {}


def make_side(*arguments: Any, **models: Any) -> SideRuntime:
    """A `SideRuntime` with these arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side, "SentenceTransformerEmbedder", _embedder)
        for module in (side, drafter):
            patch.setattr(module, "profiled_line", _line)
        return SideRuntime(*arguments, **models)


def _line(decoder: Decoder, rows: int, folder: Path) -> DecodeLine:
    key = decoder.identity, decoder.torch_device, decoder.dtype, decoder.memory.limit_bytes, rows
    if key not in _lines:
        _lines[key] = profiled_line(decoder, rows, folder)
    return _lines[key]
