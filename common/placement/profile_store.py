"""Offline decode profiles on disk, so that a daemon measures its model once and not at every start."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from common.placement.estimators import DecodeLine

_FORMAT = 1
_MOST_BYTES = 2**16  # of a profile, which has some hundred


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """Subject of a profile. Everything that makes decode steps faster or slower belongs into one of the names."""

    model: str  # identity of the weights
    torch_device: str
    rows: int


class ProfileStore:
    """One small JSON file per profile in `folder`, which is made when the first one is saved."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: ProfileKey) -> DecodeLine | None:
        """The profile of `key`. None where there is none or the file is damaged: measure it again."""
        try:
            with self._path(key).open("rb") as file:
                content = json.loads(file.read(_MOST_BYTES))
            if content["format"] != _FORMAT or content["key"] != asdict(key):
                return None
            line = content["line"]
            return DecodeLine(float(line["numerator"]), float(line["denominator"]), float(line["intercept"]))
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def save(self, key: ProfileKey, line: DecodeLine) -> None:
        """Replace the profile of `key`; a crash leaves the old one or the new one. Raises `OSError`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"format": _FORMAT, "key": asdict(key), "line": asdict(line)}, indent=1)
        descriptor, name = tempfile.mkstemp(dir=self._folder, suffix=".tmp")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path(key))
        except BaseException:
            os.unlink(name)
            raise

    def _path(self, key: ProfileKey) -> Path:
        # Model identities hold slashes and colons.
        digest = hashlib.sha256(json.dumps(asdict(key), sort_keys=True).encode()).hexdigest()
        return self._folder / f"decode-{digest[:32]}.json"
