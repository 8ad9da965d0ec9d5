"""The promises about answers, as a table: fields that decide tokens, and fields that must not.

A *law* is a question with a seed and all that its tokens depend on. Each way of asking for it gives the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Choices = Mapping[str, tuple[Any, ...]]  # values that a field is drawn from
CLOUD_FILE: Final = "handbook.md"  # a document of either cloud that is long enough to be one of `rapid`
DEVICE_FILE: Final = "diary.md"


@dataclass(frozen=True, slots=True)
class Promise:
    """Requests that have the same tokens for the same law, whatever happens meanwhile.

    `reference` are the fields of the undisturbed answer: where there are several methods, another one than those tried.
    """

    name: str
    law: Choices
    reference: Mapping[str, Any]
    ways: tuple[Choices, ...]
    laws: int = 1  # how many are drawn for a run
    cloud: bool = True  # whether it needs one
    cut: bool = False  # whether a smaller `max_tokens` only cuts the answer
    alone: bool = False  # whether an answer that the device makes alone is that of sources `device`
    fields: Mapping[str, Any] = field(default_factory=dict)  # of the law and of every way

    @property
    def methods(self) -> set[str]:
        """The methods that are asked for by name."""
        named = (fields["method"] for fields in (self.reference, self.fields) if "method" in fields)
        return {*named, *(method for way in self.ways for method in way.get("method", ()))}


_TEMPERATURES: Final = (0.0, 0.7, 1.0, 1.0)
_RACE: Final[Choices] = {"temperature": _TEMPERATURES, "documents": (2, 4), "top_p": (1.0, 1.0, 0.9)}
_PENALISED: Final[Choices] = {**_RACE, "frequency_penalty": (0.0, 0.0, 0.5)}
_BALANCED: Final[Choices] = {"privacy": ("balanced",)}
_SPECULATIVE: Final[Choices] = {"method": ("speculative",), "branches": (1, 2, 8)}
_DRAFTED: Final[Choices] = {"draft_policy": ("fixed", "goodput", "heuristic"), "draft_length": (2, 4, 8)}
_EDGE: Final[Choices] = {
    "method": ("edgellm",),
    "growth": ("best-first", "adaptive", "chain", "width"),
    "tree_size": (8, 32),
    "ahead": (True, False),
}


def _both(name: str, aggregation: str, laws: int, others: tuple[Choices, ...] = ()) -> Promise:
    return Promise(
        name,
        _PENALISED,
        {"method": "token-wise"},
        (
            {**_SPECULATIVE, "placement": ("device",), "privacy": ("strict", "balanced"), "entries": (4, 32)},
            {**_SPECULATIVE, **_BALANCED, "placement": ("cloud", "mirrored", "greedy", "random")},
            {**_BALANCED, "method": ("token-wise",), "placement": ("device", "cloud", "mirrored", "greedy")},
            *others,
        ),
        laws,
        cut=True,
        alone=True,
        fields={"sources": "both", "aggregation": aggregation},
    )


def _rounds(method: str, ahead: bool) -> Promise:
    """Proposals of fixed length give the same bonuses; where drafting goes ahead, lengths have no say."""
    law = {"temperature": _TEMPERATURES} | ({} if ahead else {"draft_length": (3, 6)})
    fields = {"method": method, "ahead": ahead} | ({"resolution": 64} if method == "qsv" else {})
    return Promise(f"{method}{'-ahead' if ahead else ''}", law, {}, (_DRAFTED if ahead else {},), fields=fields)


def _long(side: str, document: str) -> tuple[Promise, Promise]:
    fields = {"sources": side, "long_document": document, "aggregation": "context"}
    cloud = side == "cloud"
    return (
        Promise(
            f"long-{side}",
            {"temperature": _TEMPERATURES},
            {},
            ({},),
            cloud=cloud,
            cut=True,
            fields=fields | {"method": "long-context"},
        ),
        Promise(
            f"rapid-{side}",
            {"temperature": _TEMPERATURES, "eta": (0.0, 10.0), "draft_length": (4, 10)},
            {},
            ({},),
            cloud=cloud,
            fields=fields | {"method": "rapid", "verifier": side},
        ),
    )


PROMISES: Final = (
    _both("both", "output", 4, ({"method": ("fetch-text",)},)),
    _both("context", "context", 1),
    _both("blocks", "blocks", 1),
    Promise(
        "device",
        _PENALISED,
        {"method": "speculative", "sources": "device"},
        (
            {**_SPECULATIVE, "sources": ("device",)},
            {**_SPECULATIVE, "sources": ("both",), "privacy": ("offline",)},
            {**_EDGE, "sources": ("device",)},
        ),
        2,
        cloud=False,
        cut=True,
    ),
    Promise(
        "cloud",
        _RACE,
        {"method": "speculative"},
        (
            {**_SPECULATIVE},
            {**_DRAFTED, "method": ("coupled",), "ahead": (True,), "eager": (True, False)},
            {"method": ("coupled",), "ahead": (False,), "draft_length": (3, 6)},
        ),
        3,
        cut=True,
        fields={"sources": "cloud"},
    ),
    Promise(
        "paper",
        {"temperature": _TEMPERATURES},
        {"method": "token-wise"},
        (
            {"method": ("speculative", "token-wise"), "placement": ("device",)},
            {**_BALANCED, "method": ("speculative", "token-wise"), "placement": ("cloud", "greedy", "random")},
        ),
        2,
        cut=True,
        fields={"sources": "both", "sampler": "paper"},
    ),
    Promise("whole", _RACE, {}, ({},), fields={"method": "sequence-wise", "sources": "both"}),
    Promise("keys", _RACE, {}, ({},), cut=True, fields={"method": "fetch-kv", "sources": "both"}),
    Promise(  # both sides' documents in one row of the device's
        "fetched",
        {**_PENALISED, "aggregation": ("context", "blocks")},
        {},
        ({},),
        cut=True,
        fields={"method": "fetch-text", "sources": "both"},
    ),
    Promise("tree", _RACE, {}, (_EDGE,), cut=True, fields={"method": "edgellm", "sources": "both"}),
    *(_rounds(method, ahead) for method in ("dsd", "dssd", "qsv") for ahead in (False, True)),
    *_long("cloud", CLOUD_FILE),
    *_long("device", DEVICE_FILE),
)


def promises(methods: Iterable[str]) -> tuple[Promise, ...]:
    """The table, and of those of the `methods` that it does not name that the same request has the same tokens."""
    named = set[str]().union(*(promise.methods for promise in PROMISES))
    law: Choices = {"temperature": _TEMPERATURES}
    others = (Promise(each, law, {}, ({},), fields={"method": each}) for each in methods if each not in named)
    return (*PROMISES, *others)
