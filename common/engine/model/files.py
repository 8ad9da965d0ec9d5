"""Checks a model's files before any library reads them: ordinary, bounded, without code.

The files come from strangers. Libraries read names of classes, files and code from them. Anything not known to be
harmless is refused. Needs no torch.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from common.engine.model.errors import ModelError

SETTINGS_BYTES = 2**24  # of a settings file; real ones have kilobytes
TOKENIZER_BYTES = 2**27  # of a tokenizer's file; the largest in use have about 30 MiB
MOST_FILES = 10_000  # in a model's folder

_TOKENIZER_FILES = frozenset({"tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "tekken.json"})
_READ = frozenset({".json", ".txt", ".model", ".jinja", ".md", ".safetensors"})  # by libraries that load models
_PASSED_OVER = frozenset({".git", ".cache"})


def check_files(folder: Path, decoder: bool = False) -> None:
    """Checks all files for loading the model in `folder`. Raises `ModelError`.

    A `decoder` may name its own code if Transformers has classes of the same names, which are then used.
    """
    home, code = _home(folder), list[tuple[Path, Any]]()
    for count, entry in enumerate(_entries(folder)):
        if count == MOST_FILES:
            raise ModelError(f"{folder}: more than {MOST_FILES} files; give a folder that has one model and no more")
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
        # Without `tokenizer.json`, a class makes the tokenizer.
        if kind is None or not _is_native(kind, classes) or ("AutoTokenizer" in classes and not own_tokenizer):
            raise ModelError(
                f"{path}: names code that comes with the model (auto_map), and dragon never runs it; choose a "
                "checkpoint without it"
            )
    if (folder / "adapter_config.json").exists():
        raise ModelError(
            f"{folder}: has an adapter (adapter_config.json), which dragon does not load; merge it into its model"
        )


def check_vocabulary(folder: Path) -> None:
    """Raises `ModelError` without a vocabulary file: some Transformers classes would be empty."""
    if not any(map(_is_of_tokenizer, folder.iterdir())):
        raise ModelError(f"{folder}: no tokenizer (tokenizer.json); put the one that the model was trained with there")


def _is_of_tokenizer(path: Path) -> bool:
    return path.name in _TOKENIZER_FILES or path.suffix == ".model"


def read_settings(path: Path) -> Any:
    """Reads JSON. Raises `ModelError` if it is too long, invalid or unreadable."""
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
    """Target folder of permitted links: the Hub's snapshots link to `blobs` beside them."""
    resolved = folder.resolve()
    cache = resolved.parent.parent
    return cache if resolved.parent.name == "snapshots" and (cache / "blobs").is_dir() else resolved


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
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
    try:
        settings = read_settings(folder / "config.json")
    except ModelError:
        return None
    kind = settings.get("model_type") if isinstance(settings, dict) else None
    return kind if isinstance(kind, str) else None


def _checked(path: Path, home: Path) -> Iterator[Any]:
    """Yields an `auto_map`'s classes for a later check; checks everything else."""
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
        return  # its reader reports that it is broken
    if path.name.endswith(".index.json"):
        _check_shards(path, settings)
    for key, value in named_values(settings):
        if key == "auto_map" and value:
            yield value
        if key.endswith("_implementation") and isinstance(value, str) and ("/" in value or ":" in value):
            raise ModelError(f"{path}: names code from elsewhere ({key}), and dragon never runs it")


def _is_native(kind: str, classes: Any) -> bool:
    """Whether Transformers has the classes of an `auto_map`.

    A tokenizer's class does not count: its files are followed exactly.
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
    """Every value of a parsed JSON file; list items under the list's name."""
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


# --- safetensors_header
# The header of a safetensors file, checked against its size. Needs no torch.

_HEADER_BYTES = 2**25  # a thousand tensors have about 100 KB
_MOST_DIMENSIONS = 8  # of a tensor; models have up to five, in convolutions over time and space
_SAFETENSORS_HEADER_LARGEST = 2**40  # of a dimension, if others are 0


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor: the bytes from `first` to before `last` of its file."""

    dtype: str  # as safetensors name it: F32, BF16, ...
    shape: tuple[int, ...]
    first: int
    last: int


LFS_POINTER: Final = b"version https://git-lfs"  # beginning of the file that Git leaves in place of a large one
LFS_POINTED: Final = "it is a Git LFS pointer instead of the file; run `git lfs pull` there, or download it"


def check_fetched(folder: Path) -> None:
    """Raises `ModelError` for a folder with Git LFS pointers in place of files."""
    pointers = []
    for path in sorted(folder.iterdir()):
        if path.is_file():
            with path.open("rb") as file:
                if file.read(len(LFS_POINTER)) == LFS_POINTER:
                    pointers.append(path.name)
    if pointers:
        raise ModelError(f"{folder}: {', '.join(pointers)}: {LFS_POINTED}")


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file; together they cover it without overlap.

    Raises `ModelError` for any other file, or one cut off.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _HEADER_BYTES:
                raise ModelError(f"{path}: is no safetensors file, or its header is too long")
            header = file.read(length)
            end = file.seek(0, 2)
        if len(header) < length:
            raise ModelError(f"{path}: is no safetensors file, or only its beginning; get it again")
        content: Any = json.loads(header)
        tensors = {name: _stored(tensor, 8 + length) for name, tensor in content.items() if name != "__metadata__"}
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: is no safetensors file") from error
    place = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.first, tensor.last)):
        if tensor.first != place:  # several tensors on the same bytes would take any amount of memory
            raise ModelError(f"{path}: is no safetensors file")
        place = tensor.last
    if place != end:
        raise ModelError(f"{path}: is cut off, or is no safetensors file; get it again")
    return tensors


def _stored(tensor: Any, start: int) -> StoredTensor:
    shape, (first, last) = tuple(tensor["shape"]), tensor["data_offsets"]
    if len(shape) > _MOST_DIMENSIONS or any(type(number) is not int for number in (*shape, first, last)):
        raise ValueError("a shape or a place is none")
    # At most two numbers per byte: a shape can't exceed its data.
    sizes = all(0 <= size < _SAFETENSORS_HEADER_LARGEST for size in shape)
    if not sizes or not 0 <= first <= last or prod(shape) > 2 * (last - first):
        raise ValueError("a shape does not fit its data")
    return StoredTensor(str(tensor["dtype"]), shape, start + first, start + last)


# --- weight_files
# Finds the files with a model's weights. Needs no torch.

_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of the model in `folder`: one, or those in its index.

    Ignores others, such as an earlier release's shards. Empty without any. Raises `ModelError` for an invalid index and
    missing files.
    """
    if (folder / _WHOLE).is_file():
        return [folder / _WHOLE]
    index = folder / _INDEX
    if not index.is_file():
        return []
    settings = read_settings(index)
    listed = settings.get("weight_map") if isinstance(settings, dict) else None
    if not isinstance(listed, dict) or not listed:
        raise ModelError(f"{index}: lists no weights; get it again")
    files = [folder / name for name in sorted(set(map(str, listed.values())))]
    if missing := [file.name for file in files if not file.is_file()]:
        raise ModelError(f"{index}: lists {missing[0]} ({len(missing)} in all), which is missing; get it again")
    return files


# --- declared_sizes
# Checks, before memory is taken, that a configuration requests no more than its weights can fill.
#
# Reads JSON and headers; needs no torch. `loading.check_numbers` checks the rest on a model without storage.

DECODER_POSITIONS = 2**24
ENCODER_POSITIONS = 2**18

_MOST_LAYERS = 1024
_MOST_PARTS = 4096  # heads, experts, labels
_MOST_MODULES = 2**17  # experts of all layers
_LARGEST = 2**24
_WRITTEN = 1e300  # larger values are not printed in digits
_SPARE = 4  # times the largest dimension of any tensor: projections may be stored in parts

_LAYERS = re.compile(r"(^|_)(layers?|blocks|depths?)$")
_EXPERTS = re.compile(r"(^|_)experts$")
_PARTS = re.compile(r"(^(num|n)_|(^|_)(heads|labels)$)")
_POSITIONS = re.compile(r"^(n_positions|n_ctx|max_position_embeddings|max_seq(uence)?_len(gth)?|seq_length)$")
_SIZES = re.compile(r"(sizes?|dims?|dimension|features|channels|width|rank)$|^(n_embd|n_inner|d_model|d_ff|d_kv)$")
_NO_DIMENSION = re.compile(r"window|chunk|block|image|patch|batch|cache")  # sizes that are in no weight


@dataclass(frozen=True, slots=True)
class StoredWeights:
    numbers: int
    largest: int  # largest dimension of any tensor
    shapes: dict[str, tuple[int, ...]]


def stored_weights(folder: Path) -> StoredWeights:
    """The tensors of the model in `folder`. Raises `ModelError` for an invalid file."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        shapes |= {name: tensor.shape for name, tensor in read_header(path).items()}
    numbers = sum(prod(shape) for shape in shapes.values())
    return StoredWeights(numbers, max((size for shape in shapes.values() for size in shape), default=0), shapes)


def check_sizes(path: Path, stored: StoredWeights | None, positions: int) -> None:
    """Checks the numbers in a `config.json`; `positions` is the longest context.

    `stored` is None for a module without weights. Raises `ModelError`, one sentence that names the number.
    """
    settings = read_settings(path)
    layers = experts = 1
    for key, value in named_values(settings):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        most = _most(key, stored, positions)
        if most is not None and not -_LARGEST <= value <= most:  # also true for NaN
            told = "beyond counting" if abs(value) >= _WRITTEN else f"{value:.15g}"
            raise ModelError(f"{path}: {key} is {told}, more than this model's weights can fill or any model has")
        layers = max(layers, int(value)) if _LAYERS.search(key) else layers
        experts = max(experts, int(value)) if _EXPERTS.search(key) else experts
    if layers * experts > _MOST_MODULES:
        raise ModelError(f"{path}: {layers} layers of {experts} experts are more than any model has")


def _most(key: str, stored: StoredWeights | None, positions: int) -> int | None:
    """The largest value of a setting, or None if it is no size."""
    if _POSITIONS.search(key):
        return positions
    if _LAYERS.search(key):
        return _MOST_LAYERS
    if _SIZES.search(key):
        dimension = stored is not None and not _NO_DIMENSION.search(key)
        return _SPARE * stored.largest if dimension and stored is not None else _LARGEST
    return _MOST_PARTS if _PARTS.search(key) or _EXPERTS.search(key) else None
