"""Plan of the suite `edgellm`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NATURAL = "natural"  # the task whose answers end by themselves
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Task:
    """Answers of `length` tokens: exactly, or at most where they `end` by themselves."""

    length: int
    end: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """A way to answer, and how many questions of each task are answered so: slow ones take their time."""

    name: str
    fields: dict[str, Any]
    questions: Mapping[str, int]
    read_ahead: bool = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """Layers of the inflated model, the width of their feed-forward parts, and its budget; how fast it is read, in
    megabytes per second; the tasks; tokens that a natural answer should have; budgets of a curve; lengths at which the
    time of the longest task's answer is told; questions, and their length, for counts in memory.
    """

    layers: int
    inner: int
    budget: int
    speed: float
    tasks: Mapping[str, Task]
    natural: int
    questions: int
    budgets: tuple[int, ...]
    lengths: tuple[int, ...]
    counted: tuple[int, int]


# What the paper compares (Fig. 22, one technique after another): Std and SPL (target alone), SP and SI (trees of fixed
# shape), trees by confidence that are verified when it falls (BNV and SF), provisional drafts (PP); and this one's.
STD = Way("target alone, read when needed", {"growth": "none"}, {NATURAL: 1}, read_ahead=False)
ALONE = Way("target alone, read ahead", {"growth": "none"}, {NATURAL: 3})
OURS = Way("best first, drafting meanwhile", {}, {NATURAL: 3, "64": 3, "256": 1})
WAYS = (
    STD,
    ALONE,
    Way("chain of 6", {"growth": "chain", "ahead": False}, {NATURAL: 3, "64": 1}),
    Way("4 branches of 6", {"growth": "width", "tree_size": 24, "ahead": False}, {NATURAL: 3, "64": 1}),
    Way("adaptive, as published", {"growth": "adaptive", "ahead": False}, {NATURAL: 3, "64": 1}),
    Way("adaptive, drafting meanwhile", {"growth": "adaptive"}, {NATURAL: 3, "64": 1}),
    Way("best first", {"ahead": False}, {NATURAL: 3, "64": 3}),
    OURS,
)
DRAFT_ALONE = "draft model alone"

# Counted in memory: growth, and the tree's size.
COUNTED = (
    ("chain of 6", {"growth": "chain"}),
    ("4 branches of 6", {"growth": "width", "tree_size": 24}),
    ("adaptive, 128", {"growth": "adaptive"}),
    ("best first, 32", {"tree_size": 32}),
    ("best first, 64", {"tree_size": 64}),
    ("best first, 128", {"tree_size": 128}),
)
TEMPERATURES = (0.0, 0.7, 1.0)

FULL = Sizes(
    layers=32,
    inner=5036,  # 507 MiB
    budget=128 * MIB,
    speed=300.0,
    tasks={NATURAL: Task(48, end=True), "64": Task(64), "256": Task(256)},
    natural=16,
    questions=3,
    budgets=tuple(count * MIB for count in (128, 256, 384, 512, 640)),
    lengths=(64, 128, 256),
    counted=(4, 64),
)
SHORT = Sizes(
    layers=12,
    inner=704,
    budget=88 * MIB,
    speed=400.0,
    tasks={NATURAL: Task(8, end=True), "64": Task(6), "256": Task(8)},
    natural=4,
    questions=1,
    budgets=(88 * MIB, 104 * MIB),
    lengths=(4, 8),
    counted=(1, 6),
)
