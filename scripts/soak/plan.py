"""The plan of a run: what is promised about answers, and what is asked and broken when, a function of its seed. Pure.

A *law* is a question with a seed and all that its tokens depend on. Each way of asking for it gives the same tokens.
The table of promises has the fields that decide tokens, and those that must not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final

from common.methods.catalog import METHODS

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
    reference: Mapping[str, Any] = field(default_factory=dict)
    ways: tuple[Choices, ...] = ({},)
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


_WARMTH: Final[Choices] = {"temperature": (0.0, 0.7, 1.0, 1.0)}
_RACE: Final[Choices] = {**_WARMTH, "documents": (2, 4), "top_p": (1.0, 1.0, 0.9)}
_PENALISED: Final[Choices] = {**_RACE, "frequency_penalty": (0.0, 0.0, 0.5)}
_FETCHED: Final[Choices] = {**_PENALISED, "aggregation": ("context", "blocks")}  # all documents in one row
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
    law: Choices = _WARMTH if ahead else {**_WARMTH, "draft_length": (3, 6)}
    fields = {"method": method, "ahead": ahead} | ({"resolution": 64} if method == "qsv" else {})
    return Promise(f"{method}{'-ahead' if ahead else ''}", law, {}, (_DRAFTED if ahead else {},), fields=fields)


def _long(side: str, document: str) -> tuple[Promise, Promise]:
    fields = {"sources": side, "long_document": document, "aggregation": "context"}
    whole, rapid = fields | {"method": "long-context"}, fields | {"method": "rapid", "verifier": side}
    drafted = {**_WARMTH, "eta": (0.0, 10.0), "draft_length": (4, 10)}
    cloud = side == "cloud"
    return (
        Promise(f"long-{side}", _WARMTH, cloud=cloud, cut=True, fields=whole),
        Promise(f"rapid-{side}", drafted, cloud=cloud, fields=rapid),
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
        _WARMTH,
        {"method": "token-wise"},
        (
            {"method": ("speculative", "token-wise"), "placement": ("device",)},
            {**_BALANCED, "method": ("speculative", "token-wise"), "placement": ("cloud", "greedy", "random")},
        ),
        2,
        cut=True,
        fields={"sources": "both", "sampler": "paper"},
    ),
    Promise("whole", _RACE, fields={"method": "sequence-wise", "sources": "both"}),
    Promise("keys", _RACE, cut=True, fields={"method": "fetch-kv", "sources": "both"}),
    Promise("fetched", _FETCHED, cut=True, fields={"method": "fetch-text", "sources": "both"}),
    Promise("tree", _RACE, {}, (_EDGE,), cut=True, fields={"method": "edgellm", "sources": "both"}),
    *(_rounds(method, ahead) for method in ("dsd", "dssd", "qsv") for ahead in (False, True)),
    *_long("cloud", CLOUD_FILE),
    *_long("device", DEVICE_FILE),
)


def promises(methods: Iterable[str]) -> tuple[Promise, ...]:
    """The table, and of those of the `methods` that it does not name that the same request has the same tokens."""
    named = set[str]().union(*(promise.methods for promise in PROMISES))
    others = (Promise(each, _WARMTH, fields={"method": each}) for each in methods if each not in named)
    return (*PROMISES, *others)


# --- faults and requests

# Seconds from and to. Faults of one lane follow one another, those of the two meet.
LANES: Final[tuple[Mapping[str, tuple[float, float]], ...]] = (
    {
        "cloud killed": (0.5, 6.0),
        "device killed": (0.5, 3.0),
        "cloud stopped": (0.5, 6.0),
        "device stopped": (0.5, 6.0),
        "other cloud": (6.0, 15.0),
        "stranger": (3.0, 8.0),
        "worker killed": (0.5, 6.0),
        "worker stopped": (0.5, 30.0),  # until it is given up, or not
    },
    {
        "link cut": (0.5, 3.0),
        "black hole": (0.5, 6.0),
        "stalled up": (0.5, 4.0),
        "stalled down": (0.5, 4.0),
        "long way": (4.0, 15.0),
        "narrow way": (4.0, 15.0),
        "device disk full": (4.0, 15.0),
        "cloud disk full": (4.0, 15.0),
    },
)
KILLS: Final = ("cloud killed", "device killed")
KILLED_UNTIL: Final = 0.45  # share of a run: what lives from then on lives long enough to show what it gathers
GAPS: Final = ((2.0, 10.0), (1.0, 6.0))  # seconds without a fault of the lane
CROWDS: Final = (1, 2, 4)  # clients at a time
CROWD_SECONDS: Final = 20.0
LENGTHS: Final = (12, 24, 40)  # tokens that laws are asked for
NEVER_ENDING: Final = 0.5  # share of the laws without an end of sequence: answers that last


@dataclass(frozen=True, slots=True)
class Law:
    """A question with all that its tokens depend on."""

    number: int
    promise: Promise
    question: str
    fields: Mapping[str, Any]

    @property
    def tokens(self) -> int:
        return int(self.fields["max_tokens"])


@dataclass(frozen=True, slots=True)
class Ask:
    """A request. `cancelled`: seconds after which its client leaves."""

    number: int
    law: Law
    fields: Mapping[str, Any]  # the law's, and those of the way to ask for it
    stream: bool
    cancelled: float | None

    @property
    def tokens(self) -> int:
        return int(self.fields["max_tokens"])

    @property
    def method(self) -> str:
        return str(self.fields["method"])

    @property
    def waits(self) -> bool:
        return bool(self.fields.get("wait"))


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is broken from `at` on, in seconds of the run. `strength` is from 0 to 1."""

    kind: str
    at: float
    seconds: float
    strength: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A run of `seconds`. `end` is the token that ends an answer."""

    seed: int
    seconds: float
    questions: tuple[str, ...]
    end: int

    @property
    def laws(self) -> tuple[Law, ...]:
        draw, numbers = Random(f"{self.seed} laws"), count()
        return tuple(self._law(draw, next(numbers), each) for each in promises(METHODS) for _ in range(each.laws))

    def _law(self, draw: Random, number: int, promise: Promise) -> Law:
        fields = dict(promise.fields) | drawn(draw, promise.law)
        fields |= {"seed": draw.randrange(2**32), "max_tokens": draw.choice(LENGTHS)}
        if draw.random() < NEVER_ENDING:
            fields["logit_bias"] = {str(self.end): -100}
        return Law(number, promise, draw.choice(self.questions), fields)

    def asks(self) -> Iterator[Ask]:
        """Requests without end."""
        draw, laws = Random(f"{self.seed} asks"), self.laws
        for number in count():
            law = draw.choice(laws)
            fields = dict(law.fields) | drawn(draw, draw.choice(law.promise.ways))
            if law.promise.cut:
                fields["max_tokens"] = draw.choice([each for each in LENGTHS if each <= law.tokens])
            stream = draw.random() < 0.5
            if stream and draw.random() < 0.5:
                fields["provisional"] = True
            if law.promise.cloud and draw.random() < 0.4:
                fields["wait"] = True
            yield Ask(number, law, fields, stream, draw.uniform(0.05, 3.0) if draw.random() < 0.1 else None)

    def faults(self) -> tuple[tuple[Fault, ...], ...]:
        """Of each lane, in order."""
        return tuple(self._lane(lane, kinds) for lane, kinds in enumerate(LANES))

    def _lane(self, lane: int, kinds: Mapping[str, tuple[float, float]]) -> tuple[Fault, ...]:
        draw, at = Random(f"{self.seed} lane {lane}"), 0.0
        faults, deck = list[Fault](), list[str]()
        while True:
            at += draw.uniform(*GAPS[lane])
            if not deck:  # every kind comes, before one comes again
                deck = draw.sample(list(kinds), len(kinds))
            fault = Fault(kind := deck.pop(), at, draw.uniform(*kinds[kind]), draw.random())
            if fault.at + fault.seconds > self.seconds:
                return tuple(faults)
            if kind in KILLS and at > KILLED_UNTIL * self.seconds:
                continue
            faults.append(fault)
            at += fault.seconds

    def clients(self, at: float) -> int:
        """Number of clients that ask at a time, `at` seconds after the begin."""
        return Random(f"{self.seed} crowd {int(at // CROWD_SECONDS)}").choice(CROWDS)


def drawn(draw: Random, choices: Choices) -> dict[str, Any]:
    """One value of each field."""
    return {name: draw.choice(values) for name, values in choices.items()}


def reference_of(law: Law, sources: str | None = None) -> dict[str, Any]:
    """The fields of the undisturbed answer; with `sources`, of that of one side alone."""
    fields = dict(law.fields) | dict(law.promise.reference)
    return fields if sources is None else fields | {"method": "speculative", "sources": sources}
