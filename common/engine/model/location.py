"""Tells local folders from Hub ids, and finds the files of either."""

from __future__ import annotations

import os
import re
from pathlib import Path

from common.engine.model.errors import ModelError
from common.engine.model.hub import snapshot
from common.engine.model.model_files import check_files
from common.process.paths import expanded

SETTINGS = ("*.json", "*.txt", "*.model", "*.jinja")
WEIGHTS = ("*.safetensors",)
# A decoder's files lie in its top folder, but for chat templates where there are several; Mistral's `consolidated` ones
# are the same weights once more.
NOT_A_DECODER_S = ("*/*.json", "*/*.txt", "*/*.model", "*/*.safetensors", "consolidated*")

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")


def is_folder(folder_or_hub_id: str) -> bool:
    """True for a local folder, False for what can be a Hub id. Raises `ModelError` for anything else."""
    path = expanded(folder_or_hub_id)
    if os.path.isdir(path):  # of a name that no file can have, `Path.is_dir` raises OSError on some Pythons
        return True
    if os.path.exists(path):
        raise ModelError(f"{folder_or_hub_id} is a file; give the folder it is in")
    if not _HUB_ID.fullmatch(folder_or_hub_id):
        raise ModelError(f"{folder_or_hub_id}: no such folder, and not a Hub id (owner/name)")
    return False


def locate(folder_or_hub_id: str, weights: bool = True) -> Path:
    """The folder with a decoder's files, or only its tokenizer's; the files are checked. Raises `ModelError`."""
    if is_folder(folder_or_hub_id):
        folder = expanded(folder_or_hub_id)
    else:
        try:
            folder = snapshot(folder_or_hub_id, SETTINGS + (WEIGHTS if weights else ()), NOT_A_DECODER_S)
        except FileNotFoundError as error:
            raise ModelError(f"{folder_or_hub_id}: no folder here, and not available from the Hub: {error}") from error
    check_files(folder, decoder=True)
    return folder
