"""The small model that drafts for a larger one."""

from __future__ import annotations

from common.configuration.configuration import ConfigurationError
from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL, EMBEDDED_TOKENIZER, DraftModel, Settings
from common.daemon.model_runtime import ModelRuntime
from common.daemon.offline import pass_seconds, profiled_line
from common.engine.emulation import MinimumTimes
from common.engine.gate import Gate
from common.engine.kv.document_store import StoreOptions
from common.engine.model.configured import kv_limit, model_place
from common.engine.model.decoder import Decoder
from common.engine.worker import Worker
from common.estimates.peer_model import TYPICAL_CONTEXT
from common.process.startup import Startup
from common.process.vital import Died

KV_IN_BUDGET = 2**24  # bytes of its keys and values, where it shares a memory budget with what it drafts for


def load_drafter(
    wanted: DraftModel,
    settings: Settings,
    target: ModelRuntime,
    died: Died | None,
    startup: Startup,
    gate: Gate | None = None,
    budget: int | None = None,
) -> ModelRuntime:
    """The drafter of a daemon with `settings` whose own model is `target`; that itself where none is named for it.

    It shares `gate` with other models, and `budget` bytes of memory.

    Raises `ModelError`, or `ConfigurationError` for a model with another tokenizer.
    """
    name, tokenizer = wanted.name, settings.tokenizer
    if name == "auto":
        if settings.model != str(EMBEDDED_MODEL):
            return target
        name, tokenizer = str(EMBEDDED_DRAFT), str(EMBEDDED_TOKENIZER)
    startup.at("loading the draft model")
    decoder = Decoder.load(
        model_place(name, settings.models, startup),
        tokenizer=tokenizer,
        torch_device=settings.torch_device,
        dtype=settings.dtype,
        document_store=StoreOptions(settings.document_store, settings.document_store_bytes),
        kv_bytes=kv_limit(settings.kv_bytes) if budget is None else KV_IN_BUDGET,
        proofs=settings.profiles,
    )
    if not target.understands(decoder):
        decoder.close()
        raise ConfigurationError(
            f"draft_model = {wanted.name!r} has another tokenizer than the model {settings.model!r}, and its tokens "
            "would mean other words: choose a draft model of the same family, or draft_model = 'none'"
        )
    if budget is None:
        step = profiled_line(decoder, settings.documents, settings.profiles).predict(TYPICAL_CONTEXT)
    else:
        step = pass_seconds(decoder)
    minimum = None if wanted.step is None else MinimumTimes(wanted.step)
    worker = Worker(decoder, step, minimum, died, gate)
    return ModelRuntime(decoder, worker, target.scorer, target.format, target.grammars)
