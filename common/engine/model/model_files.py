"""Checks a model's files before any library reads them: ordinary, bounded in size, and without code.

The files come from strangers. Transformers and sentence-transformers take names of classes, of other files and of
code out of them; whatever is not known to be harmless is refused here. Needs no torch.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.engine.model.errors import ModelError

SETTINGS_BYTES = 2**24  # of a settings file; real ones have kilobytes
TOKENIZER_BYTES = 2**27  # of a tokenizer's file; the largest in use have some 30 MiB
MOST_FILES = 10_000  # in a model's folder

_TOKENIZER_FILES = frozenset({"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "tekken.json"})
_READ = frozenset({".json", ".txt", ".model", ".jinja", ".md", ".safetensors"})  # by the libraries that load models
_PASSED_OVER = frozenset({".git", ".cache"})


def check_files(folder: Path, decoder: bool = False) -> None:
    """Look at everything that loading the model in `folder` may read. Raises `ModelError`, one sentence.

    The files of a `decoder` may name code of its own if Transformers has classes of the same names, which are used.
    """
    home, code = _home(folder), list[tuple[Path, Any]]()
    for count, entry in enumerate(_entries(folder)):
        if count == MOST_FILES:
            raise ModelError(f"{folder}: more than {MOST_FILES} files; give a folder that holds one model and no more")
        if entry.is_symlink() and entry.is_dir():
            if not _leads_into(entry.path, folder):
                raise ModelError(f"{entry.path}: a link out of the model's folder; put a copy there")
            continue
        path = Path(entry.path)
        if path.suffix in _READ:
            code += ((path, classes) for classes in _checked(path, home))
    kind = _model_type(folder) if code and decoder else None
    own_tokenizer = (folder / "tokenizer.json").is_file()
    for path, classes in code:
        # Without a file to be taken to the letter, a tokenizer is made by a class.
        if kind is None or not _is_native(kind, classes) or ("AutoTokenizer" in classes and not own_tokenizer):
            raise ModelError(
                f"{path}: names code that comes with the model (auto_map), and such code is never run;"
                " choose a checkpoint that needs none"
            )
    if (folder / "adapter_config.json").exists():
        raise ModelError(
            f"{folder}: holds an adapter (adapter_config.json), which is not loaded; merge it into its model"
        )


def check_vocabulary(folder: Path) -> None:
    """Raise `ModelError` where no file holds a tokenizer's vocabulary: some of Transformers' classes would be empty."""
    if not any(map(_is_of_tokenizer, folder.iterdir())):
        raise ModelError(f"{folder}: no tokenizer (tokenizer.json); put the one that the model was trained with there")


def _is_of_tokenizer(path: Path) -> bool:
    return path.name in _TOKENIZER_FILES or path.suffix == ".model"


def read_settings(path: Path) -> Any:
    """Content of a JSON file. Raises `ModelError` when it is too long, no JSON, or can't be read."""
    try:
        with path.open("rb") as file:
            content = file.read(SETTINGS_BYTES + 1)
        if len(content) > SETTINGS_BYTES:
            raise ModelError(f"{path}: longer than the {SETTINGS_BYTES} bytes that settings may have")
        return json.loads(content)
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: is not JSON that can be read") from error


def _home(folder: Path) -> Path:
    """Folder that links may lead into: the Hub's cache keeps files as links to `blobs` beside its snapshots."""
    resolved = folder.resolve()
    cache = resolved.parent.parent
    return cache if resolved.parent.name == "snapshots" and (cache / "blobs").is_dir() else resolved


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below `folder`, without following links."""
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.name in _PASSED_OVER:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    yield entry
        except OSError as error:
            raise ModelError(f"{folder}: can't be read: {(error.strerror or str(error)).lower()}") from error


def _leads_into(path: str | Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(folder.resolve())


def _model_type(folder: Path) -> str | None:
    """The type of model that the configuration states, as far as it can be read."""
    try:
        settings = read_settings(folder / "config.json")
    except ModelError:
        return None
    kind = settings.get("model_type") if isinstance(settings, dict) else None
    return kind if isinstance(kind, str) else None


def _checked(path: Path, home: Path) -> Iterator[Any]:
    """The classes that a file names with an `auto_map`, to be looked for in code; all else about it is checked."""
    if not _leads_into(path, home):
        raise ModelError(f"{path}: a link out of the model's folder; put a copy there")
    try:
        status = path.stat()
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {(error.strerror or str(error)).lower()}") from error
    if stat.S_ISDIR(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{path}: not an ordinary file")
    if path.suffix == ".safetensors":
        return
    tokenizer = _is_of_tokenizer(path)
    most = TOKENIZER_BYTES if tokenizer else SETTINGS_BYTES
    if status.st_size > most:
        raise ModelError(f"{path}: has {status.st_size} bytes; at most {most} are read")
    if path.suffix == ".json" and not tokenizer:
        yield from _checked_settings(path)


def _checked_settings(path: Path) -> Iterator[Any]:
    try:
        settings = read_settings(path)
    except ModelError as error:
        if isinstance(error.__cause__, RecursionError):
            raise
        return  # whoever needs it says that it is broken
    if path.name.endswith(".index.json"):
        _check_shards(path, settings)
    for key, value in named_values(settings):
        if key == "auto_map" and value:
            yield value
        if key.endswith("_implementation") and isinstance(value, str) and ("/" in value or ":" in value):
            raise ModelError(f"{path}: names code from elsewhere ({key}), and such code is never run")


def _is_native(kind: str, classes: Any) -> bool:
    """Whether Transformers has the configuration and the decoder of this type of model, by the names in an `auto_map`.

    A tokenizer's class does not count: its files are taken to the letter.
    """
    from transformers.models.auto.auto_mappings import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

    native = {
        "AutoConfig": CONFIG_MAPPING_NAMES.get(kind),
        "AutoModel": MODEL_MAPPING_NAMES.get(kind),
        "AutoModelForCausalLM": MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind),
    }
    return isinstance(classes, dict) and all(
        name is not None and str(classes.get(auto, name)).rpartition(".")[2] == name for auto, name in native.items()
    )


def named_values(settings: Any) -> Iterator[tuple[str, Any]]:
    """Every value of a parsed JSON file with its name, however deep; list items under the list's name."""
    pending: list[tuple[str, Any]] = [("", settings)]
    while pending:
        key, value = pending.pop()
        yield key, value
        if isinstance(value, dict):
            pending += value.items()
        elif isinstance(value, list):
            pending += [(key, item) for item in value]


def _check_shards(path: Path, index: Any) -> None:
    names = index.get("weight_map") if isinstance(index, dict) else None
    for name in set(map(str, names.values())) if isinstance(names, dict) else ():
        if Path(name).name != name or Path(name).suffix != ".safetensors":
            raise ModelError(f"{path}: names weights that are no safetensors file beside it")
