"""The adjustments of one answer, position by position."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from common.processors.calls import ProcessorError, ProcessorOptions, call_grammar, decode_options
from common.processors.grammar import Grammar, Grammars
from common.processors.trial import always, json_grammar
from common.sampling.rejection import Warp
from common.sampling.truncation import nucleus, nucleus_places
from proto.messages import Open

# --- adjustment
# One position's changes to a side's mixture. Both sides' changes together give the intended distribution.
#
# With a factor g per token, that is g · p, renormalised, where p = Σ_s η^s p^s mixes both sides. Each side can do its
# part alone, since
#
#     Σ_s h^s g p^s  =  Σ_s (h^s Z^s) (g p^s / Z^s),   Z^s = Σ_i g_i p_i^s
#
# So it uses g p^s / Z^s as its mixture and h^s Z^s as its evidence. Nothing else depends on g.

# Under a strict format the probabilities may have underflowed: every allowed token counts at least this.
LEAST = 2.0**-126
_LEAST_MASS = 1e-290  # near the smallest float64 numbers, precision is low


@dataclass(frozen=True, slots=True, eq=False)
class Adjustment:
    """Factors exp(bias) of tokens, allowed tokens, and each side's truncation."""

    ids: NDArray[np.int64]  # [n], distinct
    biases: NDArray[np.float64]  # [n], nats
    allowed: torch.Tensor | None = None  # bool [vocab]; None: all
    top_p: float = 1.0  # kept mass
    cut: Warp | None = None  # only its tokens stay, with their probabilities before its temperature


def adjust(mixture: torch.Tensor, adjustment: Adjustment) -> tuple[torch.Tensor, float]:
    """One side's adjusted float32 mixture [vocab], and log Z for its evidence.

    The mixture has sum 1. Z ignores the cuts of `top_p` and `cut`: truncation is each side's own, as in the paper's
    sampler (§4.1).
    """
    place = mixture.device
    weights = mixture.to(torch.float64, copy=True)
    if adjustment.allowed is not None:
        weights.clamp_min_(LEAST).mul_(adjustment.allowed.to(place))
    weights, log_mass = _biased(weights, adjustment)
    if adjustment.top_p < 1:
        kept = _kept_by_processor if place.type == "cpu" else _kept_by_accelerator
        weights = _only(weights, kept(weights, adjustment.top_p))
    if adjustment.cut is not None:
        weights = _only(weights, torch.from_numpy(adjustment.cut(weights.to(torch.float32)).ids).to(place))
    return weights.to(torch.float32), log_mass


def _biased(weights: torch.Tensor, adjustment: Adjustment) -> tuple[torch.Tensor, float]:
    """The biased distribution, and the logarithm of its sum. Raises `ProcessorError`."""
    ids = torch.from_numpy(adjustment.ids).to(weights.device)
    made, shift = weights, 0.0
    if len(ids):
        made = weights.clone()
        with np.errstate(over="ignore"):
            made[ids] *= torch.from_numpy(np.exp(adjustment.biases)).to(weights.device)
    mass = float(made.sum())
    if not (math.isfinite(mass) and mass > _LEAST_MASS):  # penalties grow with an answer, beyond the range of factors
        made = weights.log()
        made[ids] += torch.from_numpy(adjustment.biases).to(weights.device)
        shift = float(made.max())
        if not math.isfinite(shift):
            raise ProcessorError("The format and the biases of the answer allow no next token.", "logit_bias")
        made = (made - shift).exp()
        mass = float(made.sum())
    return made / mass, math.log(mass) + shift


def _kept_by_processor(weights: torch.Tensor, top_p: float) -> torch.Tensor:
    """Ties at the nucleus's edge keep the lowest ids."""
    return torch.from_numpy(nucleus_places(weights.numpy(), top_p))


def _kept_by_accelerator(weights: torch.Tensor, top_p: float) -> torch.Tensor:
    top, _ = nucleus(weights, top_p)
    above = (weights > top[-1]).nonzero()[:, 0]
    at_edge = (weights == top[-1]).nonzero()[:, 0]
    return torch.cat([above, at_edge[: len(top) - len(above)]])


def _only(weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    kept = torch.zeros_like(weights)
    kept[ids] = weights[ids]
    return kept / kept.sum()


# --- processor


class Processor:
    """Biases, penalties, format and truncation of one answer. For the engine's thread."""

    def __init__(
        self,
        options: ProcessorOptions,
        vocabulary: int,
        grammar: Grammar | None,
        top_p: float,
        cut: Warp | None = None,
    ) -> None:
        """Raises `ProcessorError` for a bias of an unknown token."""
        if any(token >= vocabulary for token in options.logit_bias):
            raise ProcessorError(f"A token of 'logit_bias' is from 0 to {vocabulary - 1}.", "logit_bias")
        self._ids = np.fromiter(options.logit_bias.keys(), np.int64)
        self._biases = np.fromiter(options.logit_bias.values(), np.float64)
        self._presence = options.presence_penalty
        self._frequency = options.frequency_penalty
        self._grammar = grammar
        self._top_p = top_p
        self._cut = cut

    def at(self, path: list[int]) -> Adjustment:
        """The adjustment after the answer's tokens `path`. Raises as `Grammar.allowed`."""
        ids, biases = self._ids, self._biases
        if path and (self._presence or self._frequency):
            seen, counts = np.unique(np.asarray(path, np.int64), return_counts=True)
            penalties = -self._presence - self._frequency * counts
            ids, places = np.unique(np.concatenate([ids, seen]), return_inverse=True)
            biases = np.bincount(places, np.concatenate([biases, penalties])).astype(np.float64)
        allowed = None if self._grammar is None else self._grammar.allowed(path)
        return Adjustment(ids, biases, allowed, self._top_p, self._cut)


def make_processor(
    request: Open,
    vocabulary: int,
    tokens: Grammars,
    wanted: Callable[[], bool] = always,
    cut: Warp | None = None,
) -> Processor | None:
    """The processor of an answer; None if nothing changes its distribution.

    `cut` is for a race in place of a sampler with its own truncation. Raises `ProcessorError`, and `Unwanted` if
    `wanted` turns False meanwhile.
    """
    options = decode_options(request.processors)
    if not 0 < request.top_p <= 1:
        raise ProcessorError(f"'top_p' must be above 0 and at most 1, not {request.top_p:g}.", "top_p")
    # The paper's sampler truncates its own output, see `common.methods.paper.sampler`.
    top_p = request.top_p if request.sampler == "race" else 1.0
    if not request.processors and top_p == 1.0 and cut is None:
        return None
    grammar = None
    if options.response_format is not None or options.calls is not None:
        field = "response_format" if options.calls is None else "tools"
        try:
            grammar = tokens.compile(_text(options), request.eos, wanted)
        except ValueError as error:
            raise ProcessorError(f"The format of the answer can't be used: {error}.", field) from None
    return Processor(options, vocabulary, grammar, top_p, cut)


def _text(options: ProcessorOptions) -> str:
    """Raises `ValueError`, half a sentence."""
    if options.calls is not None:
        return call_grammar(options.calls, options.response_format)
    return json_grammar(options.response_format or "{}")
