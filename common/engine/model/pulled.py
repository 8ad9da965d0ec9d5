"""The models that are on this machine by name: in the folder `models`, imported, linked or put there, or in the Hub's
cache.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.engine.model.errors import ModelError
from common.engine.model.gguf import is_complete
from common.engine.model.hub import CARD, cache_folder, licence_of
from common.engine.model.location import NOT_A_DECODER_S, SETTINGS, WEIGHTS
from common.engine.model.model_files import SETTINGS_BYTES
from common.engine.model.safetensors_header import read_header
from common.process.paths import expanded

_REPOSITORY = "models--"  # with which the names of folders in the cache begin
_IMPORT = re.compile(r"(?P<stem>.+)-[0-9a-f]{16}")
_NUMBERS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model on this machine. `folder` holds its files; of a link, it is the folder that is linked."""

    name: str
    kind: Literal["imported", "linked", "hub", "folder"]
    folder: Path
    whole: bool

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in _files(self.folder))

    @property
    def numbers(self) -> str:
        """The type of most of its weights, as they are stored; empty where there are none that can be read."""
        found: Counter[str] = Counter()
        try:
            for path in self.folder.glob(WEIGHTS[0]):
                for tensor in read_header(path).values():
                    found[tensor.dtype] += tensor.last - tensor.first
        except ModelError:
            return ""
        most = found.most_common(1)
        return _NUMBERS.get(most[0][0], most[0][0].lower()) if most else ""

    @property
    def licence(self) -> str | None:
        """The licence that its card states."""
        return licence_of(card(self.folder))


def here(models: Path) -> list[Pulled]:
    """All models on this machine that can be named, by name."""
    found = [*_of_folder(models), *_of_cache()]
    return sorted(found, key=lambda each: each.name.lower())


def place_of(name: str, models: Path) -> Path | None:
    """The folder of an imported or linked model by its name, which may lack the digits behind an import's.

    None where there is none, or several. A path, or what is a folder or a file here, is no name.
    """
    if "/" in name or not name or os.path.exists(name):
        return None
    known = list(_of_folder(models))
    exact = [each.folder for each in known if each.name == name]
    short = [each.folder for each in known if (like := _IMPORT.fullmatch(each.name)) and like["stem"] == name]
    found = exact or short
    return found[0] if len(found) == 1 else None


def link(folder: Path, models: Path) -> str:
    """Make a name in `models` for a folder that stays where it is; returns the name. Raises `ModelError`."""
    target = expanded(folder).resolve()
    place = models / target.name
    try:
        models.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.is_symlink() and place.resolve() == target:
            return place.name
        if place.is_symlink() or place.exists():
            removable = place.is_symlink() or _IMPORT.fullmatch(place.name) is not None
            first = f"`dragon models remove {place.name}` first, or " if removable else ""
            raise ModelError(
                f"{target}: another model is called {place.name} already; {first}give this folder another name"
            )
        place.symlink_to(target, target_is_directory=True)
    except OSError as error:
        raise ModelError(f"{place}: can't be made: {(error.strerror or str(error)).lower()}") from error
    return place.name


def remove(chosen: Sequence[Pulled], models: Path) -> None:
    """Remove models. Of linked ones the folders stay; of the Hub's, all that its cache has. Raises `ModelError`."""
    for each in chosen:
        place = models / each.name
        try:
            match each.kind:
                case "linked":
                    place.unlink()
                case "imported":
                    shutil.rmtree(place)
                case "hub":
                    _forget(each.name)
        except OSError as error:
            raise ModelError(f"{each.name}: can't be removed: {(error.strerror or str(error)).lower()}") from error


def card(folder: Path) -> dict[str, Any]:
    """The metadata of a model's card; empty without any."""
    from huggingface_hub.repocard import metadata_load

    path = folder / CARD
    try:
        if not path.is_file() or path.stat().st_size > SETTINGS_BYTES:
            return {}
        return metadata_load(path) or {}
    except Exception:  # a card is anybody's text, and YAML's errors have no common class
        return {}


def _of_folder(models: Path) -> list[Pulled]:
    """Imports, whole or not, links, and models that somebody put there; what is being made is hidden."""
    if not models.is_dir():
        return []
    found = []
    for path in models.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_symlink():
            target = path.resolve()
            found.append(Pulled(path.name, "linked", target, any(target.glob(WEIGHTS[0]))))
        elif _IMPORT.fullmatch(path.name) and path.is_dir():
            found.append(Pulled(path.name, "imported", path, is_complete(path)))
        elif os.path.isfile(path / "config.json"):  # `Path.is_file` fails in a folder that may not be entered
            found.append(Pulled(path.name, "folder", path, any(path.glob(WEIGHTS[0]))))
    return found


def _of_cache() -> list[Pulled]:
    """Models in the Hub's cache, whole or not."""
    found = []
    for repository in cache_folder().glob(f"{_REPOSITORY}*"):
        name = repository.name.removeprefix(_REPOSITORY).replace("--", "/")
        folder = _cached(name, SETTINGS)
        if folder is not None and (folder / "config.json").exists():
            whole = _cached(name, (*SETTINGS, *WEIGHTS)) is not None and any(folder.glob(WEIGHTS[0]))
            found.append(Pulled(name, "hub", folder, whole))
    return found


def _cached(hub_id: str, wanted: Sequence[str]) -> Path | None:
    """The folder in the cache with all files of a model that match; None where some are missing."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    patterns: dict[str, Any] = {"allow_patterns": list(wanted), "ignore_patterns": list(NOT_A_DECODER_S)}
    try:
        return Path(snapshot_download(hub_id, local_files_only=True, **patterns))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def _forget(hub_id: str) -> None:
    """Remove all of a model from the Hub's cache."""
    from huggingface_hub import scan_cache_dir

    cache = scan_cache_dir(cache_folder())
    commits = [
        revision.commit_hash
        for repository in cache.repos
        if repository.repo_type == "model" and repository.repo_id == hub_id
        for revision in repository.revisions
    ]
    cache.delete_revisions(*commits).execute()
    rest = cache_folder() / f"{_REPOSITORY}{hub_id.replace('/', '--')}"
    if rest.exists():  # what an interrupted download left
        shutil.rmtree(rest)


def _files(folder: Path) -> list[Path]:
    """The files of a model; of the Hub's, with what its card says."""
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
