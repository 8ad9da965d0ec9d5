"""Time and memory of a process that loads a model and decodes with it; `test_memory.py` runs it in one of its own."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from common.configuration.settings import EMBEDDED_TOKENIZER
from common.engine.model.decoder import Decoder
from common.engine.streaming import Streaming

KV = 2**24
STEPS = 6


def counted(path: str) -> dict[str, int]:
    """The numbers of a file like `/proc/self/status`, those in kB in bytes."""
    numbers = {}
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        if number.isdigit():
            numbers[name] = int(number) * (1024 if unit == "kB" else 1)
    return numbers


def measure(folder: str, budget: int, read_ahead: bool, receiver: Connection) -> None:
    """Load with a `budget`, or all of the model where it is 0; read a prompt, and take some steps.

    Sends bytes of memory and of reading as the system counts them, and the streamed model's own counters.
    """
    torch.set_num_threads(1)
    streaming = Streaming(budget, read_ahead=read_ahead) if budget else None
    decoder = Decoder.load(
        folder,
        tokenizer=str(EMBEDDED_TOKENIZER),
        kv_bytes=KV,
        document_cache_bytes=0,
        dtype="float32",
        streaming=streaming,
    )
    rows, logits = decoder.open([[5] * 40, [6] * 9], [7] * 5, STEPS)
    told: dict[str, Any] = {"resident": None if decoder.streamed is None else decoder.streamed.first}
    before, read = counted("/proc/self/io"), 0 if decoder.streamed is None else decoder.streamed.read.bytes
    for step in range(STEPS):
        logits = decoder.step(rows, [20 + step])
    if decoder.streamed is not None:
        decoder.close()
        told |= {
            "bytes": decoder.streamed.read.bytes - read,
            "direct": decoder.streamed.direct,
            "layers": decoder.streamed.counters.layers,
        }
    after, status = counted("/proc/self/io"), counted("/proc/self/status")
    told |= {name: after[name] - before[name] for name in ("rchar", "read_bytes")}
    told |= {name: status[name] for name in ("VmHWM", "RssAnon", "RssFile")}
    told |= {"logits": logits.argmax(-1).tolist(), "threads": threading.active_count()}
    receiver.send(told)
