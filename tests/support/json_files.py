"""JSON files of a model that a test makes and alters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def change(path: Path, **values: Any) -> None:
    """Set `values` of the table in the file, which is made where there is none."""
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | values))
