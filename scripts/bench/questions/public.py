"""Python's enhancement proposals: the cloud's library."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from scripts.bench.questions.questions import QUESTIONS
from scripts.bench.results import NoText

ASKED: Final = frozenset(each.pep for each in QUESTIONS if each.pep)
BESIDE: Final = frozenset(  # which nobody asks about; close to the others
    (13, 257, 273, 378, 387, 424, 434, 477, 503, 515, 527, 559, 588, 625, 666, 790, 3102, 3105, 3120, 3132)
)
PEPS: Final = ASKED | BESIDE
"""Numbers of the proposals in the library."""


def read(folder: Path, numbers: Collection[int]) -> Mapping[str, str]:
    """Whole texts of these proposals by name, out of `pep-NNNN.rst` in `folder`. Raises `NoText`."""
    paths = [folder / f"pep-{number:04}.rst" for number in sorted(numbers)]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise NoText(f"{folder} lacks {', '.join(missing)}")
    return {path.stem: path.read_text("utf-8", errors="replace") for path in paths}
