"""Turns a pass's logits into drafts: mixtures and races of all answers together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.values import KeptMixture, SideDraft, View
from common.processors.processor import Adjustment, adjust
from common.sampling.certificate import NO_EVIDENCE
from common.sampling.mixture import Weights, attribute, distributions, information, mixed, weigh
from common.sampling.race import Found, Race, RaceKernel

# Most logits [rows, vocab] per block: more would not fit into the processor's cache.
_TOGETHER: Final = 2**20


class ListedView(View, Protocol):
    @property
    def listed(self) -> NDArray[np.integer]:
        """Ids [n], increasing."""
        ...


class Drafter(Protocol):
    """The drafting half of a sampler."""

    def race(self, position: int) -> Race | None:
        """The race for the draft at `position`. None: the sampler draws by itself."""
        ...

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> ListedView:
        """The view drawn from this side's mixture [vocab] and the outcome of `race`."""
        ...


class Joint(Protocol):
    """Decides from both sides' mixtures, if this side has fetched the other's documents."""

    def draft(
        self,
        position: int,
        mixtures: torch.Tensor,
        rows: tuple[torch.Tensor, torch.Tensor],
        weights: tuple[Weights, Weights],
        evidence: tuple[float, float],
        without: torch.Tensor | None = None,
    ) -> tuple[View, KeptMixture]:
        """Returns the target from `mixtures` `[2, vocab]`, and its attribution.

        All pairs are (device, cloud). Each mixture was made from `rows` `[docs, vocab]` with `weights`. `evidence` is
        log h, `NO_EVIDENCE` for a side without documents. `without` is that of `attribute`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """One draft to draw, from the logits of its documents.

    With `gain`, one more row without documents follows.
    """

    position: int
    scores: NDArray[np.float64]  # R(d, x_<t), [docs]
    drafter: Drafter
    absent: bool = False  # no document took part: the evidence is "none"
    fetched: int = 0  # number of documents, the last ones, from the other side
    joint: Joint | None = None  # decides if there are fetched documents
    gain: float | None = None  # score per nat by which a document changes the last row, which has none
    adjustment: Adjustment | None = None
    without: torch.Tensor | None = None  # distribution [vocab] without documents, once known

    @property
    def rows(self) -> int:
        return len(self.scores) + (self.gain is not None)


def draw(logits: torch.Tensor, samples: Sequence[Sample], kernel: RaceKernel) -> list[SideDraft | Exception]:
    """Draws `samples` from consecutive rows of `logits` `[docs of all, vocab]`.

    A failed answer yields its exception and affects no other.
    """
    results: list[SideDraft | Exception] = []
    for start, block in _blocks(samples, logits.shape[1]):
        stop = start + sum(sample.rows for sample in block)
        try:
            results += _draw(logits if len(block) == len(samples) else logits[start:stop], block, kernel)
            continue
        except Exception as error:
            if len(block) == 1:
                results.append(error)
                continue
        for sample in block:  # after `except`, which frees the error and its memory
            results += draw(logits[start : start + sample.rows], [sample], kernel)
            start += sample.rows
    return results


def _blocks(samples: Sequence[Sample], vocabulary: int) -> Iterator[tuple[int, list[Sample]]]:
    first, row, block = 0, 0, list[Sample]()
    for sample in samples:
        count = sample.rows
        if block and (row + count - first) * vocabulary > _TOGETHER:
            yield first, block
            first, block = row, []
        block.append(sample)
        row += count
    if block:
        yield first, block


def _informed(sample: Sample, logits: torch.Tensor, rows: torch.Tensor) -> tuple[Sample, torch.Tensor]:
    """Adds the information to the scores and removes the row without documents."""
    if sample.gain is None:
        return sample, rows
    scores = sample.scores + sample.gain * information(logits, rows)
    return replace(sample, scores=scores, gain=None, without=rows[-1]), rows[:-1]


def _draw(logits: torch.Tensor, samples: Sequence[Sample], kernel: RaceKernel) -> list[SideDraft | Exception]:
    counts = [sample.rows for sample in samples]
    made = distributions(logits, kernel.rows(len(logits)))
    informed = [_informed(*each) for each in zip(samples, logits.split(counts), made.split(counts), strict=True)]
    samples, rows = [sample for sample, _ in informed], [own for _, own in informed]
    parts = [_parts(sample) for sample in samples]
    weights = [each for part in parts for each in part]
    pieces = [own.split([len(each.shares) for each in part]) for own, part in zip(rows, parts, strict=True)]
    mixtures = mixed([piece for each in pieces for piece in each], weights)
    firsts = list(accumulate(map(len, parts), initial=0))
    for index, sample in enumerate(samples):
        if sample.adjustment is not None:
            parts[index] = _adjusted(mixtures[firsts[index] : firsts[index + 1]], parts[index], sample.adjustment)
    races: dict[int, Race] = {}
    for index, sample in enumerate(samples):
        if len(parts[index]) == 1 and (race := sample.drafter.race(sample.position)) is not None:
            races[index] = race
    found: dict[int, Found] = {}
    if races:
        chosen = mixtures if len(races) == mixtures.shape[0] else mixtures[[firsts[index] for index in races]]
        found = dict(zip(races, kernel.run(chosen, list(races.values())), strict=True))
    if len(samples) == 1:
        return [_one(samples[0], parts[0], mixtures, rows[0], found.get(0))]
    drawn: list[SideDraft | Exception] = []
    for index, sample in enumerate(samples):
        # A view keeps its mixture. The copy frees the others.
        own = mixtures[firsts[index] : firsts[index + 1]].clone()
        drawn.append(_one(sample, parts[index], own, rows[index], found.get(index)))
    return drawn


def _parts(sample: Sample) -> list[Weights]:
    """Mixes fetched documents separately if a `joint` decides."""
    own = len(sample.scores) - sample.fetched
    if sample.joint is None or not sample.fetched:
        return [weigh(sample.scores)]
    return [weigh(sample.scores[:own]), weigh(sample.scores[own:])]


def _adjusted(mixtures: torch.Tensor, parts: Sequence[Weights], adjustment: Adjustment) -> list[Weights]:
    """Adjusts `mixtures` `[parts, vocab]` in place. Returns weights with new evidence."""
    changed = []
    for mixture, weights in zip(mixtures, parts, strict=True):
        adjusted, gained = adjust(mixture, adjustment)
        mixture.copy_(adjusted)
        changed.append(replace(weights, evidence=float(np.float32(weights.evidence + gained))))
    return changed


def _one(
    sample: Sample, weights: Sequence[Weights], mixtures: torch.Tensor, rows: torch.Tensor, found: Found | None
) -> SideDraft | Exception:
    evidence = NO_EVIDENCE if sample.absent else weights[0].evidence
    try:
        if sample.joint is not None and len(weights) == 2:
            own = len(weights[0].shares)
            both, each = (rows[:own], rows[own:]), (weights[0], weights[1])
            evidences = (evidence, weights[1].evidence)
            target, where = sample.joint.draft(sample.position, mixtures, both, each, evidences, sample.without)
            return SideDraft(target, evidence, where)
        view = sample.drafter.drafted(sample.position, mixtures[0], found)
        return SideDraft(view, evidence, attribute(rows, weights[0], view.listed, sample.without))
    except Exception as error:
        return error
