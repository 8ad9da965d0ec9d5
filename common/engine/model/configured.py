"""The decoder that a role's settings describe."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

import torch

from common.configuration.settings import KV_SHARE, Settings
from common.engine.kv.document_store import StoreOptions
from common.engine.model.chat_format import ChatFormat
from common.engine.model.decoder import Decoder
from common.engine.model.gguf import imported, is_gguf
from common.engine.model.prompt import DOCUMENT, QUESTION, PromptFormat, TextFormat
from common.engine.model.pulled import place_of
from common.engine.model.tokenizer import Tokenizer
from common.process.memory import memory
from common.process.startup import Startup

log = logging.getLogger(__name__)


def kv_limit(kv_bytes: int | None) -> int:
    """Bytes of keys and values of a model's running answers: `kv_bytes`, or else a share of all memory here."""
    return kv_bytes or memory().total // KV_SHARE


def threads_of(shares_machine: bool) -> int:
    """Threads of a daemon whose settings name no number: those that torch finds, or half of them where another daemon
    computes on the same machine.
    """
    return max(1, _found_threads() // 2) if shares_machine else _found_threads()


@cache
def _found_threads() -> int:
    return torch.get_num_threads()


def model_place(model: str, models: Path, startup: Startup | None = None) -> str:
    """Folder or Hub id of a model, which may be named as in `models`, where a GGUF file is imported to. Raises
    `ModelError`.
    """
    if (folder := place_of(model, models)) is not None:
        return str(folder)
    return str(imported(Path(model), models, startup)) if is_gguf(model) else model


def load_decoder(settings: Settings, startup: Startup | None = None) -> Decoder:
    """Load the decoder as the role's daemon does, so that it computes the same numbers. Raises `ModelError`."""
    return Decoder.load(
        model_place(settings.model, settings.models, startup),
        tokenizer=settings.tokenizer,
        torch_device=settings.torch_device,
        dtype=settings.dtype,
        threads=settings.threads or threads_of(settings.shares_machine),
        document_store=StoreOptions(settings.document_store, settings.document_store_bytes),
        kv_bytes=kv_limit(settings.kv_bytes),
        proofs=settings.profiles,
    )


def load_format(settings: Settings, tokenizer: Tokenizer) -> PromptFormat:
    """The prompt's format: as the settings say, else by the model's chat template, else plain text."""
    plain = TextFormat(tokenizer, settings.document_format or DOCUMENT, settings.query_format or QUESTION)
    if settings.document_format or settings.query_format or not tokenizer.has_chat_template:
        return plain
    try:
        return ChatFormat(tokenizer, settings.instruction)
    except ValueError as error:
        log.warning("prompts are plain text: %s", error)
        return plain
