"""The model that verifies on the device, perhaps larger than its memory (EdgeLLM)."""

from __future__ import annotations

import time

from common.configuration import ConfigurationError
from common.engine.gate import Gate
from common.engine.worker import Worker
from common.model.configured import KV_BUDGET_SHARE, kv_limit, model_place
from common.model.decoder import Decoder
from common.model.packed import Item
from common.runtime.model_runtime import ModelRuntime
from common.settings import LocalTarget, Settings
from common.vital import Died
from common.weights.plan import Streaming

CACHE_SHARE = 16  # of a budget, for documents' keys and values


def load_local_target(
    wanted: LocalTarget,
    settings: Settings,
    own: ModelRuntime,
    drafter: ModelRuntime | None,
    gate: Gate,
    died: Died | None,
) -> ModelRuntime:
    """The model that `wanted` names, for a daemon with `settings` whose own model is `own`.

    Raises `ModelError`, also for a budget that is too small, with the smallest one that works, or `ConfigurationError`
    for a model with another tokenizer.
    """
    place = model_place(wanted.name, settings.models)
    if wanted.budget is None:
        decoder = Decoder.load(
            place,
            tokenizer=settings.tokenizer,
            torch_device=settings.torch_device,
            dtype=settings.dtype,
            kv_bytes=kv_limit(settings.kv_bytes),
        )
    else:
        decoder = Decoder.load(
            place,
            tokenizer=settings.tokenizer,
            torch_device="cpu",
            dtype=settings.dtype,
            document_cache_bytes=wanted.budget // CACHE_SHARE,
            kv_bytes=settings.kv_bytes or wanted.budget // KV_BUDGET_SHARE,
            streaming=Streaming(wanted.budget, _beside(drafter), wanted.bytes_per_second, wanted.read_ahead),
        )
    mine, other = own.decoder.tokenizer, decoder.tokenizer
    if (mine.content_hash, mine.size) != (other.content_hash, other.size):
        decoder.close()
        raise ConfigurationError(
            f"local_target = {wanted.name!r} has another tokenizer than the model {settings.model!r}, and its tokens "
            "would mean other words: choose a model of the same family, or local_target = 'none'"
        )
    worker = Worker(decoder, _pass_seconds(decoder), None, died, gate)
    return ModelRuntime(decoder, worker, own.scorer, own.format, own.grammars)


def _beside(drafter: ModelRuntime | None) -> int:
    """Bytes of the draft model, with its running answers' keys and values."""
    if drafter is None:
        return 0
    decoder = drafter.decoder
    return decoder.parameters * decoder.dtype.itemsize + (decoder.memory.limit_bytes or 0)


def _pass_seconds(decoder: Decoder) -> float:
    """Seconds of one pass. A profile of a streamed model would take minutes, and say little: most of it is reading."""
    rows = decoder.memory.take(1, 1)
    started = time.perf_counter()
    try:
        decoder.forward([Item(rows, [0])])
    finally:
        decoder.memory.give_back(rows)
    return time.perf_counter() - started
