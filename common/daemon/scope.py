"""The documents that one answer may retrieve on one side."""

from __future__ import annotations

from dataclasses import dataclass

from common.library.library import Library


@dataclass(frozen=True, slots=True)
class Scope:
    """Documents that fit one of the patterns `only`, none: all. Of this side's library, or of a `library` that is for
    one answer alone: nothing that is computed from its documents is kept.
    """

    only: tuple[str, ...] = ()
    library: Library | None = None
