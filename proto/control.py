"""Control tokens in a text, which no text can spell out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from proto import limits
from proto.bounds import Count


@dataclass(frozen=True, slots=True)
class Control:
    """A control token in a text, before the character at `place`."""

    place: Annotated[int, Count(limits.LONGEST_PROMPT + 1)]
    token: Annotated[int, Count(2**24)]
