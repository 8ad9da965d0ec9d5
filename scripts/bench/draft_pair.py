"""A synthetic target and a drafter that is cheaper and has a set overlap with it, for methods that draft and verify.

The overlap of two next-token distributions is sum_i min(p_i, q_i), 1 less their total variation. It is the probability
that speculative sampling accepts a draft, at temperature 1 and for whole distributions. What is set is its mean over
positions of texts that are drawn from the target behind 48 tokens of the sample library, one row each. Behind other
prompts it may differ by some hundredths. Where documents' rows are aggregated it is at least the mean of theirs:
mixtures differ no more than what they are made of.

The weights are random and neither model ends by itself: answers mean nothing, times and acceptance do. The drafter is
the target's first layers with the same embedding and output, and the other layers of the target write into the
residual stream what is scaled by a factor: without it both would be the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Final

import torch
from transformers import DynamicCache, PreTrainedTokenizerFast, Qwen2ForCausalLM
from transformers.utils import logging

from common.configuration.settings import EMBEDDED_TOKENIZER
from common.engine.model.decoder import cache_keyword
from scripts.bench.synthetic_model import FLAGS, never_end, random_model, scale_to
from scripts.daemons import ROOT

ENTROPY: Final = 3.0  # nats
DRAFT_LAYERS: Final = 1  # of the target's four
ROUNDS: Final = (40, 120)  # texts that are drawn, and the factor fitted to them; documents differ most
PROMPT, DRAWN = 48, 12  # tokens of a text: of documents, then the target's own, on which overlaps are measured
TOLERANCE: Final = 0.01  # of the measured overlap
_START: Final = 0.1  # factor that gives about .8
_SLOPE: Final = -0.2  # of the overlap by the factor's logarithm, there
_LEAST, _MOST = math.log(1e-3), math.log(3.0)  # the factor's logarithm; beyond, nothing changes any more
_CLOSE: Final = 0.001  # to the wanted overlap, on the texts that the factor is fitted to
_STEPS: Final = 8  # of the secant method
_SEED: Final = 11
_DOCUMENTS: Final = ROOT / "cloud" / "sample_library"


@dataclass(frozen=True, slots=True)
class Measured:
    """A pair on texts that were drawn from its target at temperature 1: means over their drawn positions."""

    overlap: float
    entropy: float  # nats of the target's next-token distribution


@dataclass(frozen=True, slots=True)
class DraftPair:
    """The models that were made. `target` and `drafter` are folders."""

    target: str
    drafter: str
    wanted: float
    measured: Measured  # on other draws than those that the factor was found on, behind the same documents

    @property
    def device(self) -> dict[str, object]:
        """Settings of a device that drafts."""
        return self.cloud | {"draft_model": self.drafter}

    @property
    def cloud(self) -> dict[str, object]:
        """Settings of a cloud that verifies."""
        return {"model": self.target, **FLAGS}


def make_pair(folder: Path, overlap: float, entropy: float = ENTROPY) -> DraftPair:
    """Save a target with next-token distributions of `entropy` nats and a drafter with a mean `overlap` with them.

    They are `target` and `drafter` below `folder`. Raises `ValueError` for an overlap that can't be had with this
    entropy.
    """
    if not 0.0 < overlap < 1.0:
        raise ValueError(f"an overlap must be between 0 and 1, not {overlap:g}")
    with torch.no_grad():
        scaled = _Scaled(entropy)
        factor = _START
        for rows in ROUNDS:
            factor = _fitted(scaled, scaled.texts(rows), overlap, factor)
        measured = scaled.measure(scaled.texts(ROUNDS[-1]))
        drafter = scaled.drafter()
    if abs(measured.overlap - overlap) > TOLERANCE:
        raise ValueError(f"an overlap of {overlap:g} can't be had at {entropy:g} nats, only {measured.overlap:.3f}")
    target, draft = folder / "target", folder / "drafter"
    logging.disable_progress_bar()
    scaled.model.save_pretrained(target)
    drafter.save_pretrained(draft)
    return DraftPair(str(target), str(draft), overlap, measured)


def _fitted(scaled: _Scaled, texts: torch.Tensor, overlap: float, factor: float) -> float:
    """The factor that gives this overlap on `texts`, by the secant method on its logarithm; `scaled` has it then."""
    at, slope, before = math.log(factor), _SLOPE, None
    for _ in range(_STEPS):
        missing = overlap - scaled.set(math.exp(at), texts).overlap
        if abs(missing) < _CLOSE:
            break
        if before is not None and at != before[0]:
            slope = min((before[1] - missing) / (at - before[0]), _SLOPE / 10)
        before = at, missing
        at = min(max(at + missing / slope, _LEAST), _MOST)
    return scaled.factor


class _Scaled:
    """The target, whose later layers and output layer are scaled again and again."""

    def __init__(self, entropy: float) -> None:
        self.model: Any = random_model(None)
        self.factor = 1.0
        self._entropy = entropy
        self._unscaled = [(matrix, matrix.weight.clone()) for layer in self._later() for matrix in _writers(layer)]
        self._generator = torch.Generator().manual_seed(_SEED)
        self._prompts = prompts(PROMPT)
        texts = prompts(PROMPT + DRAWN)[: ROUNDS[0]]
        never_end(self.model, float(self._states(texts)[0][..., 0].mean()))
        self._output = self.model.lm_head.weight.clone()
        self.set(_START, texts)

    def set(self, factor: float, texts: torch.Tensor) -> Measured:
        """Scale the later layers, and the output layer so that the entropy on `texts` is as wanted; `measure` them."""
        self.factor = factor
        for matrix, weight in self._unscaled:
            matrix.weight.copy_(factor * weight)
        self.model.lm_head.weight.copy_(self._output)
        states = self._states(texts)
        self.model.lm_head.weight.mul_(scale_to(self.model.lm_head(states[0]).flatten(0, 1), self._entropy))
        return self._compare(*states)

    def texts(self, rows: int) -> torch.Tensor:
        """Texts [rows, tokens], whose last `DRAWN` tokens are drawn from the target behind those of documents.

        Each call draws others.
        """
        texts = following = self._prompts[:rows]
        cache = {cache_keyword(self.model): DynamicCache(config=self.model.config)}
        for _ in range(DRAWN):
            passed = self.model(input_ids=following, use_cache=True, **cache)
            following = torch.multinomial(passed.logits[:, -1].softmax(-1), 1, generator=self._generator)
            texts = torch.cat((texts, following), dim=1)
        return texts

    def measure(self, texts: torch.Tensor) -> Measured:
        """The expectations of both models in place of each drawn token."""
        return self._compare(*self._states(texts))

    def drafter(self) -> Any:
        """The first layers with the embedding and the output, as a model of its own."""
        config = type(self.model.config).from_dict(self.model.config.to_dict())
        config.num_hidden_layers = DRAFT_LAYERS
        config.layer_types = config.layer_types[:DRAFT_LAYERS]
        drafter: Any = Qwen2ForCausalLM(config).eval()
        kept = drafter.state_dict().keys()
        drafter.load_state_dict({name: each for name, each in self.model.state_dict().items() if name in kept})
        return drafter

    def _compare(self, states: torch.Tensor, draft_states: torch.Tensor) -> Measured:
        target, draft = (self.model.lm_head(each).softmax(-1) for each in (states, draft_states))
        overlaps = torch.minimum(target, draft).sum(-1)  # [rows, drawn]
        return Measured(float(overlaps.mean()), float(torch.special.entr(target).sum(-1).mean()))

    def _later(self) -> Any:
        return self.model.model.layers[DRAFT_LAYERS:]

    def _states(self, texts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs of the output layer, [rows, drawn, width], in the target and in the drafter."""
        early: list[torch.Tensor] = []
        last = self.model.model.layers[DRAFT_LAYERS - 1]
        handle = last.register_forward_hook(lambda module, inputs, output: early.append(output))
        try:
            states = self.model.model(input_ids=texts[:, :-1], use_cache=False).last_hidden_state
        finally:
            handle.remove()
        return states[:, PROMPT - 1 :], self.model.model.norm(early[0])[:, PROMPT - 1 :]


def prompts(length: int) -> torch.Tensor:
    """Tokens [documents, `length`]: each row begins with a document of the sample library, and goes on with the next
    ones. The documents are in an order of no meaning."""
    texts = [path.read_text("utf-8") for path in sorted(_DOCUMENTS.glob("*.md"))]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(EMBEDDED_TOKENIZER)
    documents: list[list[int]] = [tokenizer(text)["input_ids"] for text in texts]
    following = list(chain.from_iterable(documents * 2))
    starts = accumulate(map(len, documents[:-1]), initial=0)
    rows = torch.tensor([following[start : start + length] for start in starts])
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(_SEED))]


def _writers(layer: Any) -> tuple[Any, Any]:
    """The layers that write into the residual stream."""
    return layer.self_attn.o_proj, layer.mlp.down_proj
