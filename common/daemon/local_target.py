"""The model that verifies on the device, perhaps larger than its memory (EdgeLLM)."""

from __future__ import annotations

from common.configuration.configuration import ConfigurationError
from common.configuration.settings import LocalTarget, Settings
from common.daemon.model_runtime import ModelRuntime
from common.daemon.offline import pass_seconds
from common.engine.gate import Gate
from common.engine.model.configured import kv_limit, model_place
from common.engine.model.decoder import Decoder
from common.engine.weights.plan import Streaming
from common.engine.worker import Worker
from common.process.startup import Startup
from common.process.vital import Died

# Within a memory budget, in bytes. They don't follow from it, so that the smallest budget that works can be named.
CACHE_IN_BUDGET = 2**24  # documents' keys and values
KV_IN_BUDGET = 2**26  # those of running answers, unless they are limited by a setting


def load_local_target(
    wanted: LocalTarget,
    settings: Settings,
    own: ModelRuntime,
    drafter: ModelRuntime | None,
    gate: Gate,
    died: Died | None,
    startup: Startup,
) -> ModelRuntime:
    """The model that `wanted` names, for a daemon with `settings` whose own model is `own`.

    Raises `ModelError`, also for a budget that is too small, with the smallest one that works, or `ConfigurationError`
    for a model with another tokenizer.
    """
    startup.at("loading the model that verifies here")
    place = model_place(wanted.name, settings.models, startup)
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
            document_cache_bytes=CACHE_IN_BUDGET,
            kv_bytes=settings.kv_bytes or KV_IN_BUDGET,
            streaming=Streaming(wanted.budget, _beside(drafter, own), wanted.bytes_per_second, wanted.read_ahead),
        )
    if not own.understands(decoder):
        decoder.close()
        raise ConfigurationError(
            f"local_target = {wanted.name!r} has another tokenizer than the model {settings.model!r}, and its tokens "
            "would mean other words: choose a model of the same family, or local_target = 'none'"
        )
    worker = Worker(decoder, pass_seconds(decoder), None, died, gate)
    return ModelRuntime(decoder, worker, own.scorer, own.format, own.grammars)


def _beside(drafter: ModelRuntime | None, own: ModelRuntime) -> int:
    """Bytes of the draft model, and of its running answers' keys and values where it does nothing but draft."""
    if drafter is None:
        return 0
    decoder = drafter.decoder
    weights = decoder.parameters * decoder.dtype.itemsize
    return weights if drafter is own else weights + (decoder.memory.limit_bytes or 0)
