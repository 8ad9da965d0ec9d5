"""Exact match and F1 of free-text answers, as question-answering data sets have them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_DROPPED = re.compile(r"[^\w\s.]|\.(?!\d)|\b(a|an|the)\b")


def normalised(text: str) -> list[str]:
    """Words in lower case, without articles and punctuation."""
    return _DROPPED.sub(" ", text.lower()).split()


def contains(answer: str, accepted: Sequence[str]) -> bool:
    """Whether one of the accepted answers stands in `answer` word for word."""
    words = f" {' '.join(normalised(answer))} "
    return any(f" {' '.join(normalised(one))} " in words for one in accepted)


def f1(answer: str, accepted: Sequence[str]) -> float:
    """Best token F1 over the accepted answers. A sentence around the fact counts against it."""
    return max(_f1(normalised(answer), normalised(one)) for one in accepted)


def _f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    shared = sum((Counter(given) & Counter(wanted)).values())
    return 2 * shared / (len(given) + len(wanted)) if shared else 0.0
