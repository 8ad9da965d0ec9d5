"""Files of API keys with keys that a test chooses."""

from __future__ import annotations

import hashlib
import json

from device.access.admission import ApiKeyGate
from device.access.api_keys import ApiKeyFiles


def write_keys(files: ApiKeyFiles, **keys: str) -> None:
    """Write keys by name, as a command would have: each as the SHA-256 of its UTF-8."""
    listed = [
        {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), "created": "2026-11-01"}
        for name, key in keys.items()
    ]
    files.path.parent.mkdir(parents=True, exist_ok=True)
    files.path.touch(0o600)
    files.path.write_text(json.dumps({"keys": listed}))


def admission_of(files: ApiKeyFiles, key: str) -> ApiKeyGate:
    """Admission of those who have this key."""
    write_keys(files, only=key)
    return ApiKeyGate(files)
