"""The decoder that a role's settings describe."""

from __future__ import annotations

from pathlib import Path

import psutil

from common.configuration import Settings
from common.kv.document_store import StoreOptions
from common.model.decoder import Decoder
from common.model.gguf import imported, is_gguf

_SHARE = 4  # of the machine's memory, for keys and values of running answers


def model_place(settings: Settings) -> str:
    """Folder or Hub id of the model; a GGUF file is imported for it. Raises `ModelError`."""
    if is_gguf(settings.model):
        return str(imported(Path(settings.model), settings.models))
    return settings.model


def load_decoder(settings: Settings) -> Decoder:
    """Load the decoder as the role's daemon does, so that it computes the same numbers. Raises `ModelError`."""
    return Decoder.load(
        model_place(settings),
        tokenizer=settings.tokenizer,
        torch_device=settings.torch_device,
        dtype=settings.dtype,
        threads=settings.threads,
        document_store=StoreOptions(settings.document_store, settings.document_store_bytes),
        kv_bytes=settings.kv_bytes or psutil.virtual_memory().total // _SHARE,
    )
