"""The document weights that a setting names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from common.scoring.interface import DocumentScorer
from common.scoring.lexical import DEFAULT_SCALE, LexicalScorer
from common.scoring.static import StaticScorer

STATIC_SCALE = 20.0  # cosines of related texts differ by about 0.1: a factor of seven in weight


def load_scorer(name: Literal["lexical", "static"], scale: float | None, tokenizer_folder: Path) -> DocumentScorer:
    """The scorer `name`; `scale` None is its own default. Raises `ValueError` when it can't be had."""
    match name:
        case "static":
            return StaticScorer(STATIC_SCALE if scale is None else scale)
        case "lexical":
            try:
                return LexicalScorer.load(tokenizer_folder, DEFAULT_SCALE if scale is None else scale)
            except ValueError as error:
                raise ValueError(f"{error} (or set scorer = 'static')") from None
