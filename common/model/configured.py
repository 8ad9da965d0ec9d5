"""The decoder that a role's settings describe."""

from __future__ import annotations

from common.configuration import Settings
from common.model.decoder import Decoder
from common.model.document_store import StoreOptions


def load_decoder(settings: Settings) -> Decoder:
    """As the role's daemon loads it, and whatever has to compute the same numbers. Raises `ModelError`."""
    return Decoder.load(
        settings.model,
        tokenizer=settings.tokenizer,
        torch_device=settings.torch_device,
        dtype=settings.dtype,
        threads=settings.threads,
        document_store=StoreOptions(settings.document_store, settings.document_store_bytes),
    )
