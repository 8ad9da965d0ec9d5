"""Decode profiles on disk: a daemon starts with the best one, without a measurement."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.estimates.estimators import DecodeLine
from common.process.files import private_folder, replacing

_FORMAT = 3
_MOST_BYTES = 2**16  # a profile has a few hundred
# Upper bounds: seconds per step without context, seconds per token, tokens squared.
_LONGEST, _STEEPEST, _WIDEST = 3600.0, 60.0, 2.0**48

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """Subject of a profile: everything that affects decode speed."""

    model: str  # of the weights
    torch_device: str
    rows: int


@dataclass(frozen=True, slots=True)
class KeptLine:
    """A profile, with the cores that other programs used meanwhile (0 is best)."""

    line: DecodeLine
    lacked: float = 0.0


class ProfileStore:
    """One JSON file per profile in `folder`, created when needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: ProfileKey) -> KeptLine | None:
        """None if missing or damaged (logged): measure again."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                content = json.loads(file.read(_MOST_BYTES))
            found = content["line"]
            if content == _written(key, found, content["lacked"]):
                line = DecodeLine(*(float(found[name]) for name in ("numerator", "denominator", "intercept")))
                lacked = float(content["lacked"])
                if _is_possible(line) and lacked >= 0.0:
                    return KeptLine(line, lacked)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            pass
        log.warning("the decode profile %s is damaged, or of another release: it is measured again", path)
        return None

    def save(self, key: ProfileKey, kept: KeptLine) -> None:
        """Replace a profile atomically. Raises `OSError`."""
        private_folder(self._folder)
        with replacing(self._path(key)) as file:
            file.write(json.dumps(_written(key, asdict(kept.line), kept.lacked), indent=1).encode())

    def _path(self, key: ProfileKey) -> Path:
        # Identities contain slashes and colons.
        digest = hashlib.sha256(json.dumps(asdict(key), sort_keys=True).encode()).hexdigest()
        return self._folder / f"decode-{digest[:32]}.json"


def _written(key: ProfileKey, line: dict[str, Any], lacked: float) -> dict[str, Any]:
    """A file's content with a checksum."""
    told = {"format": _FORMAT, "key": asdict(key), "line": line, "lacked": lacked}
    return told | {"sha256": hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()}


def _is_possible(line: DecodeLine) -> bool:
    """Whether a machine could produce this line, for any author of the checksum."""
    sane = 0.0 <= line.intercept <= _LONGEST and 1.0 <= line.denominator <= _WIDEST
    return sane and 0.0 <= line.slope <= _STEEPEST
