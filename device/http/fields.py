"""Unused fields of a body: refused, ignored with a note, or without effect."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from device.http.errors import ApiError, unknown

# Fields that ask for an unsupported answer, with harmless values (null always is), for bodies without use for them.
REFUSED: dict[str, tuple[object, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    # of /v1/responses, which stores nothing
    "previous_response_id": (),
    "conversation": (),
    "background": (False,),
}

# Ignored, with a note unless harmless.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "top_k": (0, -1),
    "min_p": (0, 0.0),
    "typical_p": (1, 1.0),
    "repeat_penalty": (1, 1.0),
    "repetition_penalty": (1, 1.0),
    "store": (False,),
    "reasoning": ({},),
    "reasoning_effort": ("none",),
    "truncation": ("disabled",),
}

MOST_FIELDS = 256  # per body

# For operators of many users; they change no answer.
WITHOUT_EFFECT = frozenset({"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "max_tool_calls"})

# Misspelt, these would send or use more than wanted.
_PROTECTED = ("privacy", "sources", "device_documents", "cloud_documents")
_LIKENESS = 0.8

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOST_NAMED = 8


def sift(body: Mapping[str, Any], known: Collection[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the `known` fields without nulls, and ignored names to note.

    Raises `ApiError` (400) for an unsupported field, and for a likely misspelt privacy limit.
    """
    if len(body) > MOST_FIELDS:
        raise ApiError(400, f"The body has more than {MOST_FIELDS} fields.", code="invalid_value")
    kept: dict[str, Any] = {}
    ignored = []
    for name, value in body.items():
        if value is None:
            continue
        if name in REFUSED and name not in known:
            if not _is_one_of(value, REFUSED[name]):
                raise ApiError(400, f"'{name}' is not supported.", param=name, code="unsupported_parameter")
        elif name in known:
            kept[name] = value
            if name in NEUTRAL and not _is_one_of(value, NEUTRAL[name]):
                ignored.append(name)
        elif get_close_matches(name.lower(), _PROTECTED, 1, _LIKENESS):
            raise unknown(name[:64])
        elif name not in WITHOUT_EFFECT and not _is_one_of(value, NEUTRAL.get(name, ())):
            ignored.append(name)
    return kept, tuple(ignored)


def find_foreign_options(fields: Mapping[str, Any], options: Collection[str], method: str) -> tuple[str, ...]:
    """Returns other methods' options among the `fields`, to note as ignored.

    Raises `ApiError` (400) for one unknown to other daemons' clients.
    """
    others = [name for name in fields if name not in options]
    for name in others:
        if name not in NEUTRAL:
            raise ApiError(
                400, f"'{name}' is not an option of method '{method}'.", param=name, code="unsupported_parameter"
            )
    return tuple(name for name in others if not _is_one_of(fields[name], NEUTRAL[name]))


def notes_of(ignored: Iterable[str]) -> tuple[str, ...]:
    """Returns a sentence on the ignored fields, empty if none."""
    names = list(dict.fromkeys(ignored))
    if not names:
        return ()
    shown = [f"'{name}'" if _NAME.fullmatch(name) else "one whose name can't be shown" for name in names[:_MOST_NAMED]]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (f"Ignored, because this daemon has no use for it: {', '.join(shown)}{more}.",)


def _is_one_of(value: object, values: tuple[object, ...]) -> bool:
    # By type too: `False == 0`, but `"logprobs": 0` asks for log probabilities.
    return any(type(value) is type(other) and value == other for other in values)
