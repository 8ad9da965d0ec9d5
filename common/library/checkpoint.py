"""The files of a sentence-transformers model."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from common.engine.model.errors import ModelError
from common.engine.model.files import check_files
from common.engine.model.hub import SETTINGS, WEIGHTS, snapshot
from common.process.files import expanded

# Weights and the files that change what they compute. Exports for other engines are never loaded.
_CONTENT_SUFFIXES = frozenset({".safetensors", ".json", ".txt", ".model"})
_OTHER_ENGINES = frozenset({"onnx", "openvino"})


def find_checkpoint(model: str, what: str) -> Path:
    """The folder of `model`: a local one, or a Hub model's, fetched if uncached.

    Raises `FileNotFoundError`, and `ModelError` for forbidden files. Error texts call the model `what`.
    """
    folder = expanded(model)
    if not os.path.isdir(folder):
        try:
            folder = snapshot(model, SETTINGS + WEIGHTS, [f"{engine}/*" for engine in _OTHER_ENGINES])
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"the {what} {model!r} is neither a folder here nor available from the Hub: {error}"
            ) from error
    try:
        check_files(folder)
    except ModelError as error:
        raise ModelError(f"the {what} can't be used: {error}") from error
    return folder


def configuration(folder: Path, name: str = "config.json") -> Any:
    """Content of a JSON file of the model; None if missing or broken."""
    try:
        return json.loads((folder / name).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def identity(folder: Path) -> str:
    """`<architecture>-<dimension>:<hash of weights and configuration>`.

    The folder's name is left out: two machines may name the same model differently.
    """
    return f"{_architecture(folder)}:{_content_hash(folder)}"


def _architecture(folder: Path) -> str:
    try:
        described = configuration(folder)
        return f"{described['model_type']}-{described['hidden_size']}"
    except (KeyError, TypeError):
        return "embedder"


def _content_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.suffix not in _CONTENT_SUFFIXES or _OTHER_ENGINES & set(relative.parts) or not path.is_file():
            continue
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(relative.as_posix().encode() + b"\0" + content)
    return digest.hexdigest()[:32]
