"""A report, before a model is loaded, of its fit with this machine and with the sides that are set up on it."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.filesize import decimal
from transformers import AutoConfig

from common.configuration.settings import Settings, readable_name
from common.daemon.models_here import Sides
from common.engine.model.architecture import check_architecture, max_context
from common.engine.model.configured import model_place
from common.engine.model.declared_sizes import stored_weights
from common.engine.model.errors import ModelError
from common.engine.model.loading import resolve_device, resolve_dtype
from common.engine.model.model_files import check_files
from common.engine.model.tokenizer import Tokenizer
from common.library.embedder import SentenceTransformerEmbedder
from common.library.errors import LibraryError
from common.process.memory import memory
from proto.fields import Side

_HALF = 2  # bytes of a number in the types that most models are published in


def fitting(name: str, folder: Path, stored: int, sides: Sides) -> list[str]:
    """Lines about a model whose settings and tokenizer are in `folder`, with `stored` bytes of weights.

    Raises `ModelError` for what can't be served at all.
    """
    check_files(folder, decoder=True)
    if (folder / "modules.json").exists():
        raise ModelError(f"{name}: is an embedding model: give it as the setting `embedder`, which gets it by itself")
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # wrong types and values raise whatever comes of them
        raise ModelError(f"{name}: the configuration can't be read: {' '.join(str(error).split())}") from error
    check_architecture(name, config)
    lines = [f"context     {max_context(name, config):,} tokens", _memory(config, folder, stored, sides["device"])]
    return [*lines, *_tokenizers(folder, sides), _embedders(sides)]


def _memory(config: object, folder: Path, stored: int, settings: Settings) -> str:
    """The line that compares the memory of the weights, as they are computed with here, with what is free."""
    place = resolve_device(settings.torch_device)
    stated: torch.dtype | None = getattr(config, "dtype", None)
    quantised = getattr(config, "quantization_config", None) is not None
    kept = quantised and place.type != "cpu"  # where Transformers makes no plain numbers of them
    here = stated or torch.float32 if kept else resolve_dtype(settings.dtype, stated, place)
    if quantised:
        taken = stored if kept else stored * _numbers_in_a_byte(config) * here.itemsize
    else:
        taken = _numbers(folder, stored, stated) * here.itemsize
    free = torch.cuda.mem_get_info()[0] if place.type == "cuda" else memory().available
    where = "GPU memory" if place.type == "cuda" else "memory"
    numbers = str(here).removeprefix("torch.")
    enough = "" if taken < free else ": that is too much; stop other programs, or choose a smaller model"
    return (
        f"memory      about {decimal(taken)} for its weights in {numbers}; {decimal(free)} of {where} are free{enough}"
    )


def _numbers_in_a_byte(config: object) -> int:
    described = getattr(config, "quantization_config", None)
    method = described.get("quant_method") if isinstance(described, dict) else None
    return 2 if method == "mxfp4" else 1


def _numbers(folder: Path, stored: int, stated: torch.dtype | None) -> int:
    """The count of a model's numbers, by the headers of its weights where they are in `folder`, else by their bytes."""
    try:
        numbers = stored_weights(folder).numbers
    except ModelError:  # as where the index is here, and the files that it lists are not
        numbers = 0
    return numbers or stored // (stated.itemsize if stated else _HALF)


def _tokenizers(folder: Path, sides: Sides) -> list[str]:
    """Lines that compare each side's tokenizer with the model's, by the hash that the handshake compares."""
    try:
        own = Tokenizer.load(str(folder))
    except ModelError as error:
        # Some models leave theirs to the setting `tokenizer`.
        return [f"tokenizer   none that can be read ({error})"]
    return [f"tokenizer   {_tokenizer(own, role, settings)}" for role, settings in sides.items()]


def _tokenizer(own: Tokenizer, role: Side, settings: Settings) -> str:
    model = f"the {role}'s model {readable_name(settings.model)}"
    try:
        theirs = Tokenizer.load(settings.tokenizer or model_place(settings.model, settings.models))
    except ModelError as error:
        return f"can't be compared with that of {model}: {error}"
    if (own.content_hash, own.size) == (theirs.content_hash, theirs.size):
        return f"the same as that of {model}"
    return f"another than that of {model}: the two can't answer together"


def _embedders(sides: Sides) -> str:
    """The line that compares both sides' embedding models, which a change of the language model leaves alone."""
    try:
        device, cloud = (
            SentenceTransformerEmbedder(side.embedder, side.torch_device, side.embedder_dtype).identity
            for side in (sides["device"], sides["cloud"])
        )
    except (LibraryError, ModelError) as error:
        return f"embedder    can't be compared: {error}"
    if device == cloud:
        return f"embedder    {sides['device'].embedder} on both sides, as it has to be"
    return (
        f"embedder    {sides['device'].embedder} on the device and {sides['cloud'].embedder} on the cloud: the sides"
        " can't answer together; set the same on both"
    )
