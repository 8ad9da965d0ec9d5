"""Ranks of the subsets of 0 to bound - 1 of one size: the combinatorial number system.

The members c_1 < ... < c_n of a subset have the rank C(c_1, 1) + ... + C(c_n, n), a bijection onto 0 to
C(bound, n) - 1. No step of ranking or unranking costs more than a binomial coefficient or two, whatever the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, exp, lgamma, log, perm

_CLOSE = 0.25  # a step of Newton's method after which the next one would be far below 1


def rank(members: Sequence[int]) -> int:
    """The rank of `members`, strictly increasing from 0 on."""
    total = 0
    place, value = 0, 0  # of the member below; value is its part of the rank
    for size, member in enumerate(members, 1):
        # C(place + 1, size) is one product away, and its neighbours a few.
        value = _moved(value * (place + 1) // size, place + 1, size, member) if value else comb(member, size)
        place = member
        total += value
    return total


def unrank(number: int, size: int, bound: int) -> list[int]:
    """The subset of `size` members below `bound` that has the rank `number`, which must be below C(bound, size)."""
    members = list(range(size))  # those of rank 0
    place, value = bound, comb(bound, size + 1)  # the member above, if there were one, and its part of the rank
    for index in range(size, 0, -1):
        if not number:
            break
        # What is left is below C(place, index): at most one below the member above.
        place, value = _largest(number, index, place - 1, value * (index + 1) // place)
        members[index - 1] = place
        number -= value
    return members


def _largest(number: int, size: int, place: int, value: int) -> tuple[int, int]:
    """The largest c with C(c, size) <= `number`, and that coefficient.

    `number` is at least 1, c at most `place`, and `value` is C(place, size).
    """
    if value <= number:
        return place, value
    guess = min(_estimate(number, size), place)
    value = _moved(value, place, size, guess)
    while value > number:
        value = value * (guess - size) // guess
        guess -= 1
    while guess < place:
        following = value * (guess + 1) // (guess + 1 - size)
        if following > number:
            break
        guess, value = guess + 1, following
    return guess, value


def _moved(value: int, place: int, size: int, to: int) -> int:
    """C(`to`, `size`), given that C(`place`, `size`) is `value`, not 0, and `to` at least `size`."""
    gap = abs(to - place)
    if 2 * gap > min(size, to - size):  # as many factors as that cost more than a coefficient of its own
        return comb(to, size)
    if to > place:
        return value * perm(to, gap) // perm(to - size, gap)
    return value * perm(place - size, gap) // perm(place, gap)


def _estimate(number: int, size: int) -> int:
    """The largest c with C(c, size) <= `number`, one or two off at most, for a `number` of at least 1.

    The product of c - 0, ..., c - (size - 1) is at most the power of their mean, so the first guess is not too large.
    The logarithm of C(c, size) is concave in c, and its derivative is at most ln((c + 1/2) / (c - size + 1/2)): from
    below, steps of Newton's method with that slope never pass the solution.
    """
    if size == 1:
        return number
    wanted = log(number) + lgamma(size + 1)
    solution = max(exp(wanted / size) + (size - 1) / 2, float(size))
    for _ in range(size.bit_length() + 8):
        missing = wanted - lgamma(solution + 1) + lgamma(solution - size + 1)
        step = missing / log((solution + 0.5) / (solution - size + 0.5))
        solution = max(solution + step, float(size))
        if step < _CLOSE:
            break
    return int(solution)
