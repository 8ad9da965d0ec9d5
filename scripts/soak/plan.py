"""The plan of a run, what is asked and broken when: a function of its seed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final, Literal

from common.methods.catalog import METHODS
from scripts.soak.promises import Choices, Promise, promises

Kind = Literal[
    "cloud killed",
    "device killed",
    "cloud stopped",
    "device stopped",
    "other cloud",
    "stranger",
    "worker killed",
    "worker stopped",
    "link cut",
    "black hole",
    "stalled up",
    "stalled down",
    "long way",
    "narrow way",
    "device disk full",
    "cloud disk full",
]
# Seconds from and to. Faults of one lane follow one another, those of the two meet.
LANES: Final[tuple[Mapping[Kind, tuple[float, float]], ...]] = (
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

    kind: Kind
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

    def _lane(self, lane: int, kinds: Mapping[Kind, tuple[float, float]]) -> tuple[Fault, ...]:
        draw, at = Random(f"{self.seed} lane {lane}"), 0.0
        faults, deck = list[Fault](), list[Kind]()
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
