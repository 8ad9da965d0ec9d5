"""Tells local folders from Hub ids."""

from __future__ import annotations

import re
from pathlib import Path

from common.model.errors import ModelError

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def is_folder(folder_or_hub_id: str) -> bool:
    """True for a local folder, False for what can be a Hub id. Raises `ModelError` for anything else."""
    path = Path(folder_or_hub_id).expanduser()
    if path.is_dir():
        return True
    if path.exists():
        raise ModelError(f"{folder_or_hub_id} is a file; give the folder it is in")
    if not _HUB_ID.fullmatch(folder_or_hub_id):
        raise ModelError(f"{folder_or_hub_id}: no such folder, and not a Hub id (owner/name)")
    return False
