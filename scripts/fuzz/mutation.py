"""Mutations of known inputs, for a machine without a fuzzer that sees what the code does."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from scripts.fuzz.targets import Target, probe

LONGEST = 4096  # bytes of an input
TELLING = (0, 1, 0x7F, 0x80, 0xC0, 0xC1, 0xDC, 0xDD, 0xFF)  # bytes that formats give a meaning


class Finding(Exception):
    """An input that a target failed with; the text says which."""


def mutate(data: bytes, others: Sequence[bytes], draw: random.Random) -> bytes:
    """`data` with one to four changes: bytes set, flipped, cut out, put in or doubled, or another input's tail."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randint(0, len(changed))
        match draw.randrange(6):
            case 0 if at < len(changed):
                changed[at] = draw.choice(TELLING)
            case 1 if at < len(changed):
                changed[at] ^= 1 << draw.randrange(8)
            case 2:
                del changed[at : at + draw.randint(1, 8)]
            case 3:
                changed[at:at] = draw.randbytes(draw.randint(1, 8))
            case 4:
                changed[at:at] = changed[at : at + draw.randint(1, 64)]
            case _:
                other = draw.choice(others)
                changed[at:] = other[draw.randint(0, len(other)) :]
    return bytes(changed[:LONGEST])


def search(target: Target, inputs: Sequence[bytes], seconds: float, seed: int = 0) -> int:
    """Run `target` on `inputs` and on mutations of them for `seconds`; how many that were. Raises `Finding`.

    `inputs` stay among what is mutated; inputs that are taken, not refused, join them, up to as many.
    """
    draw = random.Random(seed)
    pool = list(inputs)
    until = time.monotonic() + seconds
    count = 0
    while time.monotonic() < until:
        data = inputs[count] if count < len(inputs) else mutate(draw.choice(pool), inputs, draw)
        try:
            taken = probe(target, data)
        except Exception as error:
            raise Finding(f"{type(error).__name__} ({error}) with {data.hex()}") from error
        count += 1
        if taken and count > len(inputs) and draw.random() < 0.1:
            if len(pool) < 2 * len(inputs):
                pool.append(data)
            else:
                pool[draw.randrange(len(inputs), len(pool))] = data
    return count
