"""Commands on models: `dragon models check`, `list` and `pull_model`.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from rich.filesize import decimal
from transformers import AutoConfig

from common.configuration.settings import MODEL_SETTINGS, Settings, readable_name
from common.daemon.profile import evenly, measure_profile, no_room
from common.engine.kv.line import KvAllocationError, KvMemoryFullError
from common.engine.model import hub
from common.engine.model.architecture import check_architecture, max_context
from common.engine.model.decoder import Decoder, load_decoder, model_place
from common.engine.model.errors import ModelError
from common.engine.model.files import check_fetched, check_files, read_header, read_settings, stored_weights
from common.engine.model.gguf import MANIFEST, damaged_files, imported, is_gguf, source_of
from common.engine.model.gguf_weights import bytes_of
from common.engine.model.hub import (
    NOT_A_DECODER_S,
    SETTINGS,
    WEIGHTS,
    Pulled,
    card,
    damaged_blobs,
    find_decoder_files,
    here,
    is_folder,
    link,
    place_of,
)
from common.engine.model.loading import resolve_device, resolve_dtype, takes_codes
from common.engine.model.tokenizer import Tokenizer
from common.library.embedder import SentenceTransformerEmbedder
from common.library.errors import LibraryError
from common.library.terminal import progress_bar
from common.process.files import expanded
from common.process.machine import memory
from common.scoring.choice import scorer_without_model
from proto.messages import Exactness, Side

CONTEXT = 512  # tokens; steps are measured at half of it and at all of it
DOCUMENTS = (1, 4)
MEBIBYTE = 2**20
_MEANING: Final[dict[Exactness, str]] = {
    "bit-exact": "the same bits in every pass: alone, in a batch, in chunks, in a tree and from stored keys and values",
    "rounded": "float32 differs in the last bits between passes; probabilities are rounded before they are used",
    "near": "numbers differ between passes, so a repeated question may get a different answer; use float32",
}


def check_model(settings: Settings, other: Settings) -> list[str]:
    """Loads and describes the model of `settings`. Compares it with the side `other`.

    Raises `ModelError`, and, before loading, `ValueError` for an unavailable scorer.
    """
    weights = _weights(settings, other)
    place = Path(model_place(settings.model, settings.models))
    if os.path.exists(place / MANIFEST) and (damaged := damaged_files(place)):
        raise ModelError(f"{place}: {', '.join(damaged)} changed since the import; `dragon models remove {place.name}`")
    if not os.path.exists(place) and (damaged := damaged_blobs(find_decoder_files(settings.model))):
        raise ModelError(f"{place}: {', '.join(damaged)} changed on this disk; `dragon models remove {place}`")
    before, began = _most_memory(), time.monotonic()
    decoder = load_decoder(settings)
    try:
        described = _described(decoder, time.monotonic() - began, _most_memory() - before)
        return [*described, *_timed(decoder), _compared(decoder.tokenizer, other), weights]
    finally:
        decoder.close()


def _described(decoder: Decoder, seconds: float, memory: int) -> list[str]:
    dtype = str(decoder.dtype).removeprefix("torch.")
    ends = ", ".join(map(str, sorted(decoder.eos)))
    numbers = dtype if decoder.weights == dtype else f"{decoder.weights}, computed in {dtype}"
    size = f"{decoder.parameters / 1e6:,.1f} M parameters in {numbers}, {memory / MEBIBYTE:,.0f} MiB of memory"
    return [
        f"loaded in {seconds:.1f} s: {size}",
        f"context: {decoder.max_context:,} tokens; each takes {decoder.token_bytes / 1024:.1f} KiB for every document",
        f"numbers: {_sentence(decoder.exactness)}",
        _attention([layer.window for layer in decoder.layout.layers]),
        f"vocabulary: {decoder.vocabulary:,} tokens; an answer ends with {ends or 'none of them'}",
    ]


def _attention(windows: Sequence[int | None]) -> str:
    """Describes how far layers look back; `windows` in tokens, None for all."""
    parts = [
        f"{count} {'layers see' if count > 1 else 'layer sees'}"
        + (" all earlier tokens" if window is None else f" the last {window:,} tokens")
        for window, count in Counter(windows).items()
    ]
    return f"attention: {', '.join(parts)}"


def _timed(decoder: Decoder) -> list[str]:
    lengths = evenly(2, min(decoder.max_context - 1, CONTEXT))
    lines = []
    for rows in DOCUMENTS:
        try:
            measured = measure_profile(decoder, rows, lengths, repeats=3)
            each = ", ".join(f"{1e3 * seconds:.1f} ms at {context} tokens" for context, seconds in measured.pairs)
        except (KvMemoryFullError, KvAllocationError) as error:
            each = no_room(error)
        lines.append(f"a token with {rows} document{'s' if rows > 1 else ''}: {each}")
    return lines


def _compared(tokenizer: Tokenizer, other: Settings) -> str:
    try:
        theirs = Tokenizer.load(other.tokenizer or model_place(other.model, other.models))
    except ModelError as error:
        return f"the other side's model, as configured on this machine, can't be compared: {error}"
    if theirs.content_hash == tokenizer.content_hash:
        return "the other side's model, as configured on this machine, has the same tokenizer"
    return (
        "the other side's model, as configured on this machine, has another tokenizer: the sides can't answer together;"
        " configure two models of one family"
    )


def _weights(settings: Settings, other: Settings) -> str:
    own, theirs = (_scorer(each) for each in (settings, other))
    kinds = [each.partition(":")[0] for each in (own, theirs)]
    if own == theirs:
        return f"document weights: {kinds[0]}, on the other side, too"
    return (
        f"document weights: {kinds[0]}; the other side's, as configured on this machine, are {kinds[1]} with other"
        " numbers: the sides can't answer together; set the same scorer, with the same table or model, on both"
    )


def _scorer(settings: Settings) -> str:
    """Its kind first, as far as known without loading a model."""
    scorer = scorer_without_model(settings)
    if scorer is not None:
        return scorer.identity
    return f"cross-encoder:{settings.scorer_model}:{settings.scorer_period}:{settings.scorer_scale}"


def _most_memory() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _sentence(exactness: Exactness) -> str:
    return f"{exactness}: {_MEANING[exactness]}"


# --- models_here
# `dragon models list` and `remove`: this machine's models, and the settings that name them.

Sides = Mapping[Side, Settings]  # of both roles

_SHOWN = 12  # digits of a hash, as in a refused handshake
_NAMELESS = frozenset({"", "TokenizersBackend", "PreTrainedTokenizer", "PreTrainedTokenizerFast"})  # no family


@dataclass(frozen=True, slots=True)
class ModelListing:
    """A line of the list. Unknown texts are empty."""

    name: str
    size: int  # bytes
    numbers: str
    licence: str
    tokenizer: str
    used: str
    state: str  # location, or the fault


def list_installed_models(sides: Sides) -> list[ModelListing]:
    return [_listed(each, sides) for each in here(sides["device"].models)]


def find_models(names: Sequence[str], models: Path) -> list[Pulled]:
    """Returns the removable models with these names.

    Raises `ModelError` for an unknown name or a user's folder.
    """
    known = {each.name: each for each in here(models)}
    for name in names:
        if name not in known:
            raise ModelError(f"{name}: there is no such model here; `dragon models list` shows the installed models")
        if known[name].kind == "folder":
            raise ModelError(f"{name}: dragon did not create {known[name].folder}; remove it yourself")
    return [known[name] for name in names]


def used_by(model: Pulled, sides: Sides) -> list[str]:
    """Returns the settings that name a model, e.g. `device model`."""
    found = []
    for role, settings in sides.items():
        for setting in MODEL_SETTINGS:
            name = getattr(settings, setting, None)
            if isinstance(name, str) and _names(name, model, settings.models):
                found.append(f"{role} {setting}")
    return found


def _listed(model: Pulled, sides: Sides) -> ModelListing:
    used = ", ".join(used_by(model, sides))
    return ModelListing(
        model.name, model.size, model.numbers, model.licence or "", _family(model.folder), used, _where(model)
    )


def _where(model: Pulled) -> str:
    match model.kind:
        case "hub":
            return "Hub's cache" if model.whole else f"incomplete: `dragon models pull {model.name}` continues"
        case "imported":
            if not model.whole:
                return "incomplete: its next use imports it again"
            source = source_of(model.folder)
            return "imported" if source is None else f"imported; its weights are in {source.path}"
        case "folder":
            return "a folder of its own" if model.whole else "a folder without weights"
        case "linked":
            return f"{model.folder}" if model.whole else f"{model.folder}, where the model no longer exists"


def _family(folder: Path) -> str:
    """The tokenizer's kind, size and hash prefix; empty without one."""
    try:
        tokenizer = Tokenizer.load(str(folder))
    except ModelError:
        return ""
    try:
        kind = str(read_settings(folder / "tokenizer_config.json").get("tokenizer_class", ""))
    except (ModelError, AttributeError):
        kind = ""
    if kind in _NAMELESS:
        kind = str(json.loads(tokenizer.description)["model"].get("type", ""))
    kind = kind.removesuffix("Fast").removesuffix("Tokenizer")
    return f"{kind} {tokenizer.size:,} {tokenizer.content_hash[:_SHOWN]}"


def _names(name: str, model: Pulled, models: Path) -> bool:
    if model.kind == "hub":
        return name == model.name
    if is_gguf(name):
        return model.kind == "imported" and model.name.rpartition("-")[0] == Path(name).stem
    place = place_of(name, models) or expanded(name)
    return place.resolve() == model.folder.resolve()


# --- pull_command
# `dragon models pull` describes a model, then brings it to this machine.
#
# Results go to stdout, everything else to stderr.

PICKLES = (".bin", ".pt", ".pth", ".ckpt")

Say = Callable[[str], object]


def pull_model(given: str, sides: Sides, say: Say) -> str:
    """Brings a model here by Hub id, folder or `.gguf` file. Returns its name for settings.

    `say` receives lines about it. Raises `ModelError`.
    """
    models = sides["device"].models
    if (named := hub.file_on_hub(given)) is not None:
        return _import(_download_file(*named, say), models, sides, say)
    if is_gguf(given):
        return _import(expanded(given), models, sides, say)
    if is_folder(given):
        return _link(expanded(given), models, sides, say)
    return _download(given, sides, say)


def _import(file: Path, models: Path, sides: Sides, say: Say) -> str:
    if os.path.isfile(file):
        say(f"{file.name}: {decimal(file.stat().st_size)}")
    folder = imported(file, models)
    stays = source_of(folder) is not None
    say("its weights stay in that file" if stays else f"its weights were written as bfloat16 to {models}")
    _tell(folder.name, folder, _stored(folder), sides, say)
    return folder.name


def _link(folder: Path, models: Path, sides: Sides, say: Say) -> str:
    if not any(folder.glob(WEIGHTS[0])):
        raise ModelError(f"{folder}: no safetensors weights (*.safetensors); pickled weights are not read")
    check_fetched(folder)
    for weights in folder.glob(WEIGHTS[0]):
        read_header(weights)  # reports a truncated file now
    stored, licence = _stored(folder), hub.licence_of(card(folder)) or "not stated"
    say(f"{folder}: {decimal(stored)} of weights, licence {licence}; the files stay there")
    _tell(str(folder), folder, stored, sides, say)
    return link(folder, models)


def _download(hub_id: str, sides: Sides, say: Say) -> str:
    offer = hub.offered(hub_id)
    weights = hub.list_hub_files(hub_id, WEIGHTS, NOT_A_DECODER_S)
    if not weights:
        raise ModelError(_without_weights(offer))
    _announce(offer, weights, say)
    _tell(hub_id, _get(hub_id, (*SETTINGS, hub.CARD)), sum(file.size for file in weights), sides, say)
    _fetch(hub_id, weights)
    _check_blobs(hub_id, _get(hub_id, (*SETTINGS, *WEIGHTS, hub.CARD)))
    return hub_id


def _download_file(hub_id: str, name: str, say: Say) -> Path:
    offer = hub.offered(hub_id)
    files = hub.list_hub_files(hub_id, (name,), ())
    if not files:
        others = ", ".join(each for each in offer.names if is_gguf(each)) or "none"
        raise ModelError(f"{hub_id}: has no file {name}; its .gguf files: {others}")
    _announce(offer, files, say)
    _fetch(hub_id, files)
    folder = _get(hub_id, (name,))
    _check_blobs(hub_id, folder)
    return folder / name


def _announce(offer: hub.Offer, files: Sequence[hub.HubFile], say: Say) -> None:
    total, present = sum(file.size for file in files), sum(file.size for file in files if file.here)
    begun = f", of which {decimal(present)} are here" if present else ""
    say(f"{offer.hub_id}: {decimal(total)} of weights{begun}, licence {offer.licence or 'not stated'}")


def _fetch(hub_id: str, files: Sequence[hub.HubFile]) -> None:
    """Raises `ModelError` if they do not fit on the disk."""
    total, present = sum(file.size for file in files), sum(file.size for file in files if file.here)
    room = shutil.disk_usage(hub.cache_folder()).free
    if room < total - present:
        raise ModelError(
            f"{hub_id}: {hub.cache_folder()} has only {decimal(room)} free; free some space, or set HF_HOME"
        )
    with progress_bar("downloading", in_bytes=True) as bar:
        before = 0
        for file in files:

            def reached(here: int, before: int = before, name: str = file.name) -> None:
                bar(before + here, total, name, "")

            hub.fetch(hub_id, file, reached)
            before += file.size


def _check_blobs(hub_id: str, folder: Path) -> None:
    """Removes files that differ from the Hub's. Raises `ModelError` for them."""
    if damaged := damaged_blobs(folder):
        hub.forget_blobs(folder, damaged)
        raise ModelError(
            f"{hub_id}: {', '.join(damaged)} {'is' if len(damaged) == 1 else 'are'} damaged (the checksum differs "
            "from the Hub's) and was removed; run the same command again"
        )


def _get(hub_id: str, wanted: tuple[str, ...]) -> Path:
    """Returns the folder of the newest commit with the matching files."""
    try:
        return hub.download_newest(hub_id, wanted, NOT_A_DECODER_S)
    except FileNotFoundError as error:
        raise ModelError(f"{hub_id}: {error}") from error


def _tell(name: str, folder: Path, stored: int, sides: Sides, say: Say) -> None:

    for line in describe_fit(name, folder, stored, sides):
        say(line)


def _stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob(WEIGHTS[0]))


def _without_weights(offer: hub.Offer) -> str:
    if files := [name for name in offer.names if is_gguf(name)]:
        return f"{offer.hub_id}: has .gguf files; name one: `dragon models pull {offer.hub_id}/{files[0]}`"
    if any(name.endswith(PICKLES) for name in offer.names):
        return (
            f"{offer.hub_id}: its weights are pickled, and dragon never reads pickled files; choose a model with "
            "safetensors"
        )
    return f"{offer.hub_id}: has no weights (*.safetensors)"


# --- fitting
# A report, before loading, of a model's fit with this machine and both sides.

_HALF = 2  # bytes per number, usually


def describe_fit(name: str, folder: Path, stored: int, sides: Sides) -> list[str]:
    """Returns lines about the model in `folder`, with `stored` bytes of weights.

    `folder` needs no weights. Raises `ModelError` for an unservable model.
    """
    check_files(folder, decoder=True)
    if (folder / "modules.json").exists():
        raise ModelError(f"{name}: is an embedding model: set it as `embedder`, and the daemon downloads it")
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # wrong types raise anything
        raise ModelError(f"{name}: the configuration can't be read: {' '.join(str(error).split())}") from error
    check_architecture(name, config)
    lines = [f"context     {max_context(name, config):,} tokens", _memory(config, folder, stored, sides["device"])]
    return [*lines, *_tokenizers(folder, sides), _embedders(sides)]


def _memory(config: object, folder: Path, stored: int, settings: Settings) -> str:
    place = resolve_device(settings.torch_device)
    source = source_of(folder)
    stated: torch.dtype | None = getattr(config, "dtype", None)
    quantised = getattr(config, "quantization_config", None) is not None
    kept = quantised and place.type != "cpu"  # Transformers does not dequantise there
    here = stated or torch.float32 if kept else resolve_dtype(settings.dtype, stated, place)
    if quantised:
        taken = stored if kept else stored * _numbers_in_a_byte(config) * here.itemsize
    elif source is not None:
        coded = takes_codes(settings.dtype, place)
        taken = bytes_of(source, here, coded)
        kept = kept or coded
    else:
        taken = _numbers(folder, stored, stated) * here.itemsize
    free = torch.cuda.mem_get_info()[0] if place.type == "cuda" else memory().available
    where = "GPU memory" if place.type == "cuda" else "memory"
    numbers = "as they are stored" if kept else f"in {str(here).removeprefix('torch.')}"
    enough = "" if taken < free else ": that is too much; stop other programs, or choose a smaller model"
    return f"memory      about {decimal(taken)} for its weights {numbers}; {decimal(free)} of {where} are free{enough}"


def _numbers_in_a_byte(config: object) -> int:
    described = getattr(config, "quantization_config", None)
    method = described.get("quant_method") if isinstance(described, dict) else None
    return 2 if method == "mxfp4" else 1


def _numbers(folder: Path, stored: int, stated: torch.dtype | None) -> int:
    """Counts the model's numbers in weight headers, else estimates them from the bytes."""
    try:
        numbers = stored_weights(folder).numbers
    except ModelError:  # e.g. an index without its files
        numbers = 0
    return numbers or stored // (stated.itemsize if stated else _HALF)


def _tokenizers(folder: Path, sides: Sides) -> list[str]:
    try:
        own = Tokenizer.load(str(folder))
    except ModelError as error:
        # Some models rely on the setting `tokenizer`.
        return [f"tokenizer   not readable ({error})"]
    return [f"tokenizer   {_tokenizer(own, role, settings)}" for role, settings in sides.items()]


def _tokenizer(own: Tokenizer, role: Side, settings: Settings) -> str:
    model = f"the {role}'s model {readable_name(settings.model)}"
    try:
        theirs = Tokenizer.load(settings.tokenizer or model_place(settings.model, settings.models))
    except ModelError as error:
        return f"can't be compared with that of {model}: {error}"
    if (own.content_hash, own.size) == (theirs.content_hash, theirs.size):
        return f"the same as that of {model}"
    return f"not the same as that of {model}: the two can't answer together"


def _embedders(sides: Sides) -> str:
    try:
        device, cloud = (
            SentenceTransformerEmbedder(side.embedder, side.torch_device, side.embedder_dtype).identity
            for side in (sides["device"], sides["cloud"])
        )
    except (LibraryError, ModelError) as error:
        return f"embedder    can't be compared: {error}"
    if device == cloud:
        return f"embedder    {sides['device'].embedder} on both sides, as required"
    return (
        f"embedder    {sides['device'].embedder} on the device and {sides['cloud'].embedder} on the cloud: the sides"
        " can't answer together; set the same on both"
    )
