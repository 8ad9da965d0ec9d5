"""Tells which files of a folder hold a model's weights. Needs no torch."""

from __future__ import annotations

from pathlib import Path

from common.engine.model.errors import ModelError
from common.engine.model.model_files import read_settings

_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of the model in `folder`, as Transformers names them: one, or those that an index lists.

    What else lies there, such as shards of an earlier release, is not the model's. Empty where there are none; raises
    `ModelError` for an index that is none, and for files that it lists and that are not there.
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
        raise ModelError(f"{index}: lists {missing[0]} ({len(missing)} in all), which is not there; get it again")
    return files
