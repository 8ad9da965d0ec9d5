"""Models that settings name, as far as they can be judged without loading them or asking the Hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device.doctor.facts import Model
from device.doctor.gathering import sentence

if TYPE_CHECKING:
    from common.configuration.settings import Settings


def of_models(settings: Settings, own: Mapping[str, Any]) -> Iterator[Model]:
    """The models that settings name, other than `auto`, which is one of the others or small.

    The embedding model only where it is still to be downloaded: what is wrong with it, the library's facts say.
    """
    for setting in ("model", "draft_model", "local_target"):
        name = own.get(setting)
        if name not in (None, "auto", "none"):
            budget = own.get("memory_budget") if setting == "local_target" else None
            yield _language_model(setting, name, settings.models, budget)
    if settings.tokenizer is not None:
        yield _tokenizer(settings.tokenizer)
    if settings.scorer_model is not None:
        yield _scorer(settings.scorer_model, settings.scorer)
    if is_remote_encoder(settings.embedder):
        yield Model("embedder", settings.embedder, "remote")


def is_remote_encoder(name: str) -> bool:
    """Whether `name` can be the Hub id of an embedding model or a cross-encoder, and its files are not here."""
    from common.engine.model.errors import ModelError
    from common.engine.model.hub import is_folder
    from common.library import checkpoint
    from common.library.embedder import BUNDLED

    try:
        if name == BUNDLED or is_folder(name):
            return False
        checkpoint.locate(name, "")
    except FileNotFoundError:
        return True
    except (ModelError, OSError):
        pass
    return False


def _language_model(setting: str, name: str, models: Path, budget: int | None) -> Model:
    from common.configuration.settings import readable_name
    from common.engine.model.errors import ModelError
    from common.engine.model.gguf import is_complete, is_gguf
    from common.engine.model.hub import is_folder, locate, place_of
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
            size = _weights(locate(name))
        except ModelError:
            if local:
                raise
            size = 0
        if not size and local:
            raise ModelError("no safetensors weights are in it")
    except (ModelError, OSError) as error:
        return _wrong(setting, name, error)
    return Model(setting, readable_name(name), "there" if size else "remote", size, memory=budget)


def _tokenizer(name: str) -> Model:
    from common.engine.model.errors import ModelError
    from common.engine.model.files import check_vocabulary
    from common.engine.model.hub import is_folder, locate

    setting = "tokenizer"
    try:
        local = is_folder(name)
        try:
            folder = locate(name, weights=False)
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
        folder = checkpoint.locate(name, "scorer's model")
        from common.scoring.relevance import kind_of  # which takes a second, for torch

        kind_of(folder)
        if not (size := _weights(folder)):
            raise ModelError("no safetensors weights are in it")
    except (ModelError, ValueError, OSError) as error:
        return _wrong(setting, name, error)
    return Model(setting, name, "there", size)


def _wrong(setting: str, name: str, error: Exception) -> Model:
    return Model(setting, name, "wrong", problem=sentence(error).removeprefix(f"{setting}: ").removeprefix(f"{name}: "))


def _weights(folder: Path) -> int:
    from common.engine.model.files import weight_files
    from common.engine.model.gguf import source_of

    if (source := source_of(folder)) is not None:
        return source.size
    return sum(file.stat().st_size for file in weight_files(folder))
