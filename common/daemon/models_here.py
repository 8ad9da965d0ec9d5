"""`dragon models list` and `remove`: the models that are on this machine, and which settings name them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.configuration.settings import MODEL_SETTINGS, Settings
from common.engine.model.errors import ModelError
from common.engine.model.gguf import is_gguf
from common.engine.model.model_files import read_settings
from common.engine.model.pulled import Pulled, here, place_of
from common.engine.model.tokenizer import Tokenizer
from common.process.paths import expanded
from proto.fields import Side

Sides = Mapping[Side, Settings]  # the settings of both roles

_SHOWN = 12  # digits of a tokenizer's hash, as a refused handshake shows them
_NAMELESS = frozenset({"", "TokenizersBackend", "PreTrainedTokenizer", "PreTrainedTokenizerFast"})  # say no family


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the list; texts are empty where nothing is known."""

    name: str
    size: int  # bytes
    numbers: str
    licence: str
    tokenizer: str
    used: str
    state: str  # where it is, or what is wrong


def list_models(sides: Sides) -> list[Listed]:
    """The models on this machine, by name."""
    return [_listed(each, sides) for each in here(sides["device"].models)]


def find_models(names: Sequence[str], models: Path) -> list[Pulled]:
    """Models that may be removed, by their names in `list_models`. Raises `ModelError` if there is none of one of them,
    or it is a folder that somebody put there.
    """
    known = {each.name: each for each in here(models)}
    for name in names:
        if name not in known:
            raise ModelError(f"{name}: there is no such model here; `dragon models list` shows those that are")
        if known[name].kind == "folder":
            raise ModelError(f"{name}: {known[name].folder} was put there by somebody, who may remove it")
    return [known[name] for name in names]


def used_by(model: Pulled, sides: Sides) -> list[str]:
    """The roles' settings that name a model: `device model`, `cloud model`, ..."""
    found = []
    for role, settings in sides.items():
        for setting in MODEL_SETTINGS:
            name = getattr(settings, setting, None)
            if isinstance(name, str) and _names(name, model, settings.models):
                found.append(f"{role} {setting}")
    return found


def _listed(model: Pulled, sides: Sides) -> Listed:
    used = ", ".join(used_by(model, sides))
    return Listed(
        model.name, model.size, model.numbers, model.licence or "", _family(model.folder), used, _where(model)
    )


def _where(model: Pulled) -> str:
    match model.kind:
        case "hub":
            return "Hub's cache" if model.whole else f"not whole: `dragon models pull {model.name}` goes on"
        case "imported":
            return "imported" if model.whole else "not whole: it is imported again when it is used"
        case "folder":
            return "a folder of its own" if model.whole else "a folder without weights"
        case "linked":
            return f"{model.folder}" if model.whole else f"{model.folder}, where no model is any more"


def _family(folder: Path) -> str:
    """The tokenizer's kind, its size, and the beginning of the hash that the sides compare; empty without one."""
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
    """Whether a setting with this value means `model`."""
    if model.kind == "hub":
        return name == model.name
    if is_gguf(name):
        return model.kind == "imported" and model.name.rpartition("-")[0] == Path(name).stem
    place = place_of(name, models) or expanded(name)
    return place.resolve() == model.folder.resolve()
