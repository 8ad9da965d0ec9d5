"""Notes of one form that one thing tells apart: a date, a version, a code, an address, an amount or a name.

Vectors hardly tell such notes apart: a search finds the right one by its words.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from itertools import product
from typing import Final, NamedTuple

_THINGS: Final = ("lamp oil", "two chairs", "a ladder", "candles", "garden tools", "printer paper", "a kettle", "rope")
_PLACES: Final = ("the barn", "the office", "the shop", "room 12", "shelf 4", "the harbour", "desk 31", "the attic")
_FIRST: Final = ("Marta", "Jan", "Peter", "Aiko", "Omar", "Lucía", "Brian", "Ewa", "Søren", "Chloé", "Ivan", "Noor")
_LAST: Final = (
    *("Ruiz", "Keller", "O'Neill", "Novák", "Tanaka", "Haddad", "Smith", "Petrov", "Müller", "Okafor", "Rossi"),
    *("Peter", "Lind", "Silva", "Chen", "Jan", "O'Brien", "Neill", "Costa", "Weber"),
)
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


class Alike(NamedTuple):
    """A note, and a question that it alone answers."""

    note: str
    question: str


class _Kind(NamedTuple):
    """A kind of things: all there are, as notes and as questions write them, and the texts around them."""

    things: Callable[[], list[tuple[str, str]]]
    note: str
    question: str


def _same(written: str) -> tuple[str, str]:
    return written, written


def _dates() -> list[tuple[str, str]]:
    """Days in figures, every other one of which the question has in words."""
    days = [date(2026, 1, 1) + timedelta(number) for number in range(300)]
    in_words = [f"{day.day} {_MONTHS[day.month - 1]} {day.year}" for day in days]
    return [(f"{day}", words if day.day % 2 else f"{day}") for day, words in zip(days, in_words, strict=True)]


def _versions() -> list[tuple[str, str]]:
    long = [f"{major}.{minor}.{patch}" for major, minor, patch in product(range(1, 4), range(12), range(12))]
    return [_same(version) for version in (*long, *(version.rpartition(".")[0] for version in long[::12]))]


def _codes() -> list[tuple[str, str]]:
    numbers = product(("KX", "KY", "AB", "XK"), range(4), range(7), range(5))
    return [_same(f"{letters}-{first}8{second}{third}1") for letters, first, second, third in numbers]


def _addresses() -> list[tuple[str, str]]:
    return [
        _same(f"10.{second}.{third}.{last}") for second, third, last in product((0, 1, 11), (1, 11, 111), range(1, 60))
    ]


def _amounts() -> list[tuple[str, str]]:
    amounts = [(euros, cents) for euros in (12, 120, 212, 1_212, 1_120, 12_120, 2_112) for cents in range(10, 60)]
    return [
        (f"{euros:,}.{cents}", f"{euros}.{cents}" if cents % 2 else f"{euros:,}.{cents}") for euros, cents in amounts
    ]


def _names() -> list[tuple[str, str]]:
    return [_same(" ".join(both)) for both in product(_FIRST, _LAST)]


KINDS: Final[Mapping[str, _Kind]] = {
    "dates": _Kind(_dates, "Diary {0}: bought {1} at {2}, cost {3}.{4} euros.", "What happened on {0}?"),
    "versions": _Kind(
        _versions, "Version {0} of the scheduler: {1} for {2}, fix {3}, page {4}.", "What is new in version {0}?"
    ),
    "codes": _Kind(_codes, "Order {0}: {3} of {1}, sent to {2} at {4} euros.", "Where was order {0} sent to?"),
    "addresses": _Kind(_addresses, "Host {0} in {2} has {3} disks of {4} GB and {1}.", "What does the host {0} have?"),
    "amounts": _Kind(_amounts, "Paid {0} euros for {1} in {2}, bill {3} of page {4}.", "What was {0} euros paid for?"),
    "names": _Kind(_names, "{0} borrowed {1} from {2} for {3} days, at {4} cents.", "What did {0} borrow?"),
}


def notes(kind: str, count: int) -> list[Alike]:
    """Returns notes of a kind with their questions, drawn with a fixed seed."""
    chosen = random.Random(f"notes of {kind}")
    things, note, question = KINDS[kind]
    found = []
    for written, asked in chosen.sample(things(), count):
        rest = (chosen.choice(_THINGS), chosen.choice(_PLACES), chosen.randrange(1, 30), chosen.randrange(10, 99))
        found.append(Alike(note.format(written, *rest), question.format(asked)))
    return found
