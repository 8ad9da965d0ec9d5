"""Repetition: when an answer is taken to repeat itself."""

from __future__ import annotations

import itertools
import random

import pytest

from device.active_request import FEWEST_CYCLES, LONGEST_CYCLE, SHORTEST_RUN, Repetition


def ends_at(tokens: list[int]) -> int | None:
    """The number of tokens at which the answer is ended."""
    repetition = Repetition()
    return next((place for place, token in enumerate(tokens, 1) if repetition.push(token)), None)


def plainly(tokens: list[int]) -> int | None:
    """The same, by comparing pieces of the answer."""
    for place in range(1, len(tokens) + 1):
        for cycle in range(1, LONGEST_CYCLE + 1):
            run = max(SHORTEST_RUN, FEWEST_CYCLES * cycle)
            tail = tokens[place - run : place] if place >= run else []
            if tail and all(token == tail[index % cycle] for index, token in enumerate(tail)):
                return place
    return None


@pytest.mark.parametrize("cycle", [1, 2, 7, 13, LONGEST_CYCLE])
@pytest.mark.parametrize("before", [0, 5])
def test_a_cycle_ends_it(cycle: int, before: int) -> None:
    tokens = [1000 + place for place in range(before)] + [*itertools.islice(itertools.cycle(range(cycle)), 400)]
    assert ends_at(tokens) == before + max(SHORTEST_RUN, FEWEST_CYCLES * cycle)


def test_what_is_said_a_few_times_does_not() -> None:
    line = list(range(LONGEST_CYCLE))
    assert ends_at([*(line * (FEWEST_CYCLES - 1)), 99, *(line * (FEWEST_CYCLES - 1))]) is None
    assert ends_at([7] * (SHORTEST_RUN - 1)) is None
    assert ends_at([token for number in range(60) for token in (5, 6, 100 + number)]) is None  # a table's rows


@pytest.mark.parametrize("seed", range(40))
def test_as_by_plain_comparison(seed: int) -> None:
    source = random.Random(seed)
    pieces = [[source.randrange(3) for _ in range(source.randrange(1, 40))] * source.randrange(1, 30) for _ in range(4)]
    tokens = [token for piece in pieces for token in piece][:500]
    assert ends_at(tokens) == plainly(tokens)
