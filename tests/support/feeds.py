"""Feeds of jobs that are not there, for what chooses among them."""

from __future__ import annotations

from collections.abc import Hashable
from types import SimpleNamespace
from typing import Final

import torch

from common.engine.kv.memory import Layout, Rows, SlotChunk
from common.engine.model.packed import Feed

CHUNK: Final = SlotChunk(Layout((), torch.float32, torch.device("cpu")), 1, 1, True)


def feed(tenant: Hashable, rows: int, tokens: int, running: bool, logits: int = 1) -> Feed:
    """`tokens` tokens for each of `rows` rows, of an answer that is `running` or has yet to begin."""
    made = Feed(Rows(CHUNK, 0, rows), range(tokens), logits)
    made.job = SimpleNamespace(tenant=tenant, running=running)
    made.running = running
    return made
