"""Judges the models in the settings without loading them or asking the Hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from common.process.machine import memory
from device.doctor.checks import Finding, describe_error, in_bytes

if TYPE_CHECKING:
    from common.configuration.settings import Settings

PROGRAM: Final = 700 * 2**20  # bytes of a daemon without its language models
IMPORTED: Final = 4  # size of an import, in sizes of a quantised .gguf file, roughly
TOPICS: Final = {"tokenizer": "tokenizer", "scorer_model": "scorer", "embedder": "embedder"}  # except `model`
_DECODING: Final = ("model", "draft_model", "local_target")  # with answers' keys and values


@dataclass(frozen=True, slots=True)
class Model:
    """A model or tokenizer in a setting. `size`: bytes of weights, 0 if unknown."""

    setting: str
    name: str
    state: Literal["there", "importable", "remote", "wrong"]  # importable: .gguf file; remote: to download
    size: int = 0
    problem: str = ""
    memory: int | None = None  # limit in bytes, if smaller


def check_model_files(model: Model) -> Finding:
    named, topic = f"{model.setting} {model.name}", TOPICS.get(model.setting, "model")
    match model.state:
        case "there":
            return Finding("ok", topic, f"{named}: {in_bytes(model.size) if model.size else 'it is there'}")
        case "importable":
            return Finding("ok", topic, f"{named}: {in_bytes(model.size)}, converted at the first start")
        case "remote":
            text = f"{named}: not on this machine; the first start downloads it"
            return Finding("warn", topic, text, "be online at the first start, or name a folder")
        case "wrong":
            remedy = f"set {model.setting} to an installed model, or leave it out"
            return Finding("wrong", topic, f"{named}: {model.problem}", remedy)


def check_memory(settings: Settings, models: Sequence[Model], processes: int) -> Finding:
    """Checks the memory for `processes` with the models; 0: on other machines."""
    from common.configuration.settings import KV_SHARE

    room = memory()
    needed = max(1, processes) * PROGRAM + processes * sum(map(_memory_of, models))
    who = f"the {processes} workers take" if processes > 1 else "the daemon takes"
    text = f"{in_bytes(room.available)} free; {who} about {in_bytes(needed)}"
    if settings.torch_device == "cuda" or (settings.torch_device == "auto" and Path("/dev/nvidiactl").exists()):
        return Finding("ok", "memory", f"{text}, of which the models use GPU memory")
    if room.available < needed:
        fewer = ", or fewer workers" if processes > 1 else ""
        return Finding("wrong", "memory", text, f"end other programs, or set a smaller model{fewer}")
    budgeted = any(model.memory is not None for model in models)  # the budget includes the draft model
    decoding = [each for each in models if each.setting in _DECODING and each.memory is None]
    rows = max(1, sum(not (budgeted and each.setting == "draft_model") for each in decoding))
    answers = (settings.kv_bytes or room.total // KV_SHARE) * rows
    if room.available < needed + answers and processes:
        text += f", and answers up to {in_bytes(answers)}"
        return Finding("warn", "memory", text, "end other programs, or set kv_bytes to less")
    return Finding("ok", "memory", text)


def _memory_of(model: Model) -> int:
    size = IMPORTED * model.size if model.state == "importable" else model.size
    return size if model.memory is None else min(size, model.memory)


def gather_models(settings: Settings) -> Iterator[Model]:
    """Yields the models in the settings except `auto`, which is another one or small.

    The embedding model only before its download: later the library's check covers it.
    """
    for setting in ("model", "draft_model", "local_target"):
        name = getattr(settings, setting, None)
        if name not in (None, "auto"):
            budget = getattr(settings, "memory_budget", None) if setting == "local_target" else None
            yield _language_model(setting, name, settings.models, budget)
    if settings.tokenizer is not None:
        yield _tokenizer(settings.tokenizer)
    if settings.scorer_model is not None:
        yield _scorer(settings.scorer_model, settings.scorer)
    if is_remote_encoder(settings.embedder):
        yield Model("embedder", settings.embedder, "remote")


def is_remote_encoder(name: str) -> bool:
    """Whether `name` may be a Hub encoder without local files."""
    from common.engine.model.errors import ModelError
    from common.engine.model.hub import is_folder
    from common.library import checkpoint
    from common.library.embedder import BUNDLED

    try:
        if name == BUNDLED or is_folder(name):
            return False
        checkpoint.find_checkpoint(name, "")
    except FileNotFoundError:
        return True
    except (ModelError, OSError):
        pass
    return False


def _language_model(setting: str, name: str, models: Path, budget: int | None) -> Model:
    from common.configuration.settings import readable_name
    from common.engine.model.errors import ModelError
    from common.engine.model.gguf import is_complete, is_gguf
    from common.engine.model.hub import find_decoder_files, is_folder, place_of
    from common.process.files import expanded

    try:
        if (named := place_of(name, models)) is not None:
            return Model(setting, name, "there", _weights(named), memory=budget)
        if is_gguf(name):
            file = expanded(name)
            done = [folder for folder in models.glob(f"{file.stem}-*") if is_complete(folder)]
            if done and file.is_file():
                return Model(setting, readable_name(name), "there", max(map(_weights, done)), memory=budget)
            if not file.is_file():
                raise ModelError("there is no such file")
            return Model(setting, readable_name(name), "importable", file.stat().st_size, memory=budget)
        local = is_folder(name)
        try:
            size = _weights(find_decoder_files(name))
        except ModelError:
            if local:
                raise
            size = 0
        if not size and local:
            raise ModelError("it has no safetensors weights")
    except (ModelError, OSError) as error:
        return _wrong(setting, name, error)
    return Model(setting, readable_name(name), "there" if size else "remote", size, memory=budget)


def _tokenizer(name: str) -> Model:
    from common.engine.model.errors import ModelError
    from common.engine.model.files import check_vocabulary
    from common.engine.model.hub import find_decoder_files, is_folder

    setting = "tokenizer"
    try:
        local = is_folder(name)
        try:
            folder = find_decoder_files(name, weights=False)
        except ModelError:
            if local:
                raise
            return Model(setting, name, "remote")
        check_vocabulary(folder)
    except (ModelError, OSError) as error:
        return _wrong(setting, name, error)
    return Model(setting, name, "there")


def _scorer(name: str, scorer: str) -> Model:
    from common.engine.model.errors import ModelError
    from common.library import checkpoint

    setting = "scorer_model"
    try:
        if scorer != "cross-encoder":
            raise ValueError(f"it is for scorer = 'cross-encoder', and scorer is {scorer!r}")
        if is_remote_encoder(name):
            return Model(setting, name, "remote")
        folder = checkpoint.find_checkpoint(name, "scorer's model")
        from common.scoring.relevance import kind_of  # takes a second

        kind_of(folder)
        if not (size := _weights(folder)):
            raise ModelError("it has no safetensors weights")
    except (ModelError, ValueError, OSError) as error:
        return _wrong(setting, name, error)
    return Model(setting, name, "there", size)


def _wrong(setting: str, name: str, error: Exception) -> Model:
    return Model(
        setting, name, "wrong", problem=describe_error(error).removeprefix(f"{setting}: ").removeprefix(f"{name}: ")
    )


def _weights(folder: Path) -> int:
    from common.engine.model.files import weight_files
    from common.engine.model.gguf import source_of

    if (source := source_of(folder)) is not None:
        return source.size
    return sum(file.stat().st_size for file in weight_files(folder))
