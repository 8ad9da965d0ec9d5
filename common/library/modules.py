"""Checks the parts of a sentence-transformers model before the library imports them by name.

`modules.json` names classes, and their settings name functions, methods, files and models, which the library calls.
Only parts known to compute vectors from text pass.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from common.engine.model.errors import ModelError
from common.engine.model.files import (
    ENCODER_POSITIONS,
    StoredWeights,
    check_sizes,
    check_vocabulary,
    read_settings,
    stored_weights,
)

# Module paths in the releases of sentence-transformers; class `X` is in `x.py` there.
_PLACES = (
    "sentence_transformers.models",
    "sentence_transformers.base.modules",
    "sentence_transformers.sentence_transformer.modules",
)
_KINDS = ("Transformer", "Pooling", "Dense", "Normalize")
_TYPES = {f"{place}.{part}": kind for place in _PLACES for kind in _KINDS for part in (kind, f"{kind.lower()}.{kind}")}
_ACTIVATIONS = frozenset(
    f"torch.nn.modules.{name}"
    for name in (
        "linear.Identity",
        *(f"activation.{kind}" for kind in ("Tanh", "ReLU", "GELU", "SiLU", "Sigmoid", "LeakyReLU", "ELU", "Mish")),
    )
)
# Harmless settings of the language model's module: they change only numbers. Omitted, because they name methods, models
# or files: `modality_config` beyond text, `tokenizer_name_or_path`, and arguments of Transformers' loaders.
_HARMLESS = frozenset({"max_seq_length", "do_lower_case", "unpad_inputs", "query_length", "document_length"})
_ARGUMENTS = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")
_HARMLESS_ARGUMENTS = frozenset({"model_max_length", "padding_side", "truncation_side", "trust_remote_code"})
_TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}


def check_modules(folder: Path) -> tuple[Path, StoredWeights]:
    """Checks the model in `folder`; returns its language model's folder and weights.

    Raises `ModelError`, one sentence that names the file.
    """
    described = folder / "config_sentence_transformers.json"
    if described.exists():
        stated = read_settings(described)
        kind = stated.get("model_type") if isinstance(stated, dict) else None
        if not isinstance(stated, dict) or kind not in (None, "SentenceTransformer"):
            raise ModelError(f"{described}: describes no model that gives one vector for a text ({str(kind)[:40]})")
    path = folder / "modules.json"
    modules = read_settings(path)
    if not isinstance(modules, list) or not 0 < len(modules) <= 16:
        raise ModelError(f"{path}: is no list of the model's modules")
    found = [(_kind(path, module), _place(path, module)) for module in modules]
    if [kind for kind, _ in found].count("Transformer") != 1 or found[0][0] != "Transformer":
        raise ModelError(f"{path}: the first module, and no other, must be a Transformer")
    for kind, place in found[1:]:
        _check_module(kind, folder / place)
    transformer = folder / found[0][1]
    return transformer, _check_transformer(transformer)


def check_activation(path: Path, name: object) -> None:
    """Raises `ModelError` unless the activation named in `path` is a known one."""
    if name is not None and name not in _ACTIVATIONS:
        raise ModelError(f"{path}: names the function {str(name)[:80]!r}, which is not a known activation")


def _kind(path: Path, module: Any) -> str:
    name = module.get("type") if isinstance(module, dict) else None
    kind = _TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ModelError(
            f"{path}: names the module {str(name)[:80]!r}, and modules are code; known are {', '.join(_KINDS)}"
        )
    return kind


def _place(path: Path, module: dict[str, Any]) -> str:
    place = module.get("path")
    if not isinstance(place, str) or PurePosixPath(place).is_absolute() or ".." in place or "\\" in place:
        raise ModelError(f"{path}: names a module's folder that is not below the model's own")
    if place and not (path.parent / place).is_dir() and module["type"].rpartition(".")[2] != "Normalize":
        raise ModelError(f"{path}: names the module folder {place[:80]!r}, which is missing")
    if set(module) - {"idx", "name", "path", "type"} and module.get("kwargs"):
        raise ModelError(f"{path}: gives arguments to a module, which is not supported")
    return place


def _check_module(kind: str, folder: Path) -> None:
    path = folder / "config.json"
    if kind == "Normalize" or not path.exists():
        return
    settings = read_settings(path)
    if not isinstance(settings, dict):
        raise ModelError(f"{path}: is no table of settings")
    if kind == "Pooling":
        check_sizes(path, None, ENCODER_POSITIONS)
        return
    if not (folder / "model.safetensors").is_file():
        raise ModelError(f"{folder}: no safetensors weights (model.safetensors); pickled weights are not read")
    check_activation(path, settings.get("activation_function"))
    shape = stored_weights(folder).shapes.get("linear.weight")
    if shape != (settings.get("out_features"), settings.get("in_features")):
        raise ModelError(f"{path}: in_features and out_features differ from the weights beside it")
    if settings.get("use_residual") not in (None, False):
        raise ModelError(f"{path}: use_residual is not supported")


def _check_transformer(folder: Path) -> StoredWeights:
    check_vocabulary(folder)
    for path in sorted(folder.glob("sentence_*_config.json")):
        settings = read_settings(path)
        if not isinstance(settings, dict):
            raise ModelError(f"{path}: is no table of settings")
        for key, value in settings.items():
            if key not in _HARMLESS and not _only_text(key, value):
                raise ModelError(f"{path}: {key[:40]} is set to what may load or run something else; remove it")
    stored = stored_weights(folder)
    if not stored.shapes:
        raise ModelError(f"{folder}: no safetensors weights (model.safetensors); pickled weights are not read")
    check_sizes(folder / "config.json", stored, ENCODER_POSITIONS)
    return stored


def _only_text(key: str, value: Any) -> bool:
    if key in _ARGUMENTS:
        return value in (None, {}) or (isinstance(value, dict) and set(value) <= _HARMLESS_ARGUMENTS)
    if key == "modality_config":
        return bool(value == _TEXT)
    known = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}
    return value is None or known.get(key) == value
