"""Synthetic models, for daemons that are to hesitate as larger models do. Their answers mean nothing, their times do.

The weights are random, and no model ends by itself. `make_model` makes one whose next token has a wanted entropy.
`make_pair` makes a target and a drafter that is cheaper and has a set overlap with it.

The overlap of two next-token distributions is sum_i min(p_i, q_i), 1 less their total variation. It is the probability
that speculative sampling accepts a draft, at temperature 1 and for whole distributions. What is set is its mean over
positions of texts that are drawn from the target behind 48 tokens of the sample library, one row each. Behind other
prompts it may differ by some hundredths. Where documents' rows are aggregated it is at least the mean of theirs:
mixtures differ no more than what they are made of. The drafter is the target's first layers with the same embedding and
output, and the other layers of the target write into the residual stream what is scaled by a factor: without it both
would be the same.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import torch
from transformers import DynamicCache, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.engine.model.decoder import cache_keyword
from scripts.daemons import ROOT

FLAGS: Final[dict[str, object]] = {"tokenizer": str(EMBEDDED_TOKENIZER)}  # of daemons that use such a model
WEIGHTS: Final = 0.06  # standard deviation of the random ones
ATTENTION: Final = 0.25  # of its random weight: how much the documents, on which the sides differ, move a distribution
NEVER: Final = -1e4  # logit of the end token
ROWS, LENGTH = 16, 64  # of the random texts that the entropy is measured on; their last half counts
_HALVINGS: Final = 20
_SEED: Final = 7
_DRAWING: Final = threading.Lock()  # PyTorch's random numbers are the whole process's


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model that is larger or smaller than the embedded one."""

    width: int
    layers: int
    inner: int  # width within a feed-forward layer
    heads: int
    key_heads: int


def make_model(folder: Path, entropy: float, shape: Shape | None = None) -> dict[str, object]:
    """Save a model whose next-token distributions have `entropy` nats on average; its `shape` is the embedded one's
    where none is given.

    Returns the settings that a daemon is given for it. Raises `ValueError` for an entropy that the vocabulary has not.
    """
    model = random_model(shape)
    hidden, logits = _last_states(model)
    model.lm_head.weight.data *= scale_to(logits, entropy)
    never_end(model, float(hidden[..., 0].mean()))
    logging.disable_progress_bar()
    model.save_pretrained(folder)
    return {"model": str(folder)} | FLAGS


def random_model(shape: Shape | None) -> Any:
    """A model of random weights, of the embedded one's shape where none is given.

    Dimension 0 of the residual stream is the same everywhere: nothing reads or writes it but `never_end`.
    """
    config = Qwen2Config.from_pretrained(EMBEDDED_MODEL)
    if shape is not None:
        config.hidden_size, config.num_hidden_layers = shape.width, shape.layers
        config.intermediate_size = shape.inner
        config.num_attention_heads, config.num_key_value_heads = shape.heads, shape.key_heads
        config.layer_types = ["full_attention"] * shape.layers
    config.initializer_range = WEIGHTS
    config.tie_word_embeddings = False
    with _DRAWING:
        torch.manual_seed(_SEED)
        model: Any = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 1.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= ATTENTION
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        model.lm_head.weight[:, 0] = 0.0
    return model


def nats(probabilities: torch.Tensor) -> float:
    """Entropy."""
    return float(torch.special.entr(probabilities.to(torch.float64)).sum())


@torch.no_grad()
def _last_states(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states `[rows, tokens, width]` and logits `[rows * tokens, vocab]` on random texts."""
    generator = torch.Generator().manual_seed(_SEED)
    texts = torch.randint(2, model.config.vocab_size, (ROWS, LENGTH), generator=generator)
    hidden = model.model(input_ids=texts, use_cache=False).last_hidden_state[:, LENGTH // 2 :]
    logits: torch.Tensor = model.lm_head(hidden).flatten(0, 1).float()
    return hidden, logits


def scale_to(logits: torch.Tensor, entropy: float) -> float:
    """Factor of `logits` [n, vocab] that gives them `entropy` nats on average: the larger, the less.

    Found by bisection, on every eighth row. Raises `ValueError` for an entropy that the vocabulary has not.
    """
    vocabulary = logits.shape[-1]
    if not 0.0 < entropy < math.log(vocabulary):
        raise ValueError(f"{vocabulary} tokens can't have an entropy of {entropy:g} nats")
    low, high = 0.0, 1e4
    for _ in range(_HALVINGS):
        middle = math.sqrt(max(low, 1e-4) * high)
        if fmean(nats(row) for row in torch.softmax(middle * logits[::8], dim=-1)) > entropy:
            low = middle
        else:
            high = middle
    return high


def never_end(model: Any, constant: float) -> None:
    """Let the end token's logit be `NEVER` wherever dimension 0 is about `constant`."""
    eos = PreTrainedTokenizerFast.from_pretrained(EMBEDDED_TOKENIZER).eos_token_id
    with torch.no_grad():
        model.lm_head.weight[eos] = 0.0
        model.lm_head.weight[eos, 0] = NEVER / constant


# --- a target and its drafter

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
_PAIR_SEED: Final = 11
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
        # The later layers' own layers that write into the residual stream.
        later = self.model.model.layers[DRAFT_LAYERS:]
        writers = [matrix for layer in later for matrix in (layer.self_attn.o_proj, layer.mlp.down_proj)]
        self._unscaled = [(matrix, matrix.weight.clone()) for matrix in writers]
        self._generator = torch.Generator().manual_seed(_PAIR_SEED)
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

    def _states(self, texts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs of the output layer, [rows, drawn, width], in the target and in the drafter."""
        model = self.model.model
        passed = model(input_ids=texts[:, :-1], use_cache=False, output_hidden_states=True)
        return passed.last_hidden_state[:, PROMPT - 1 :], model.norm(passed.hidden_states[DRAFT_LAYERS])[
            :, PROMPT - 1 :
        ]


def prompts(length: int) -> torch.Tensor:
    """Tokens [documents, `length`]: each row begins with a document of the sample library, and goes on with the next
    ones. The documents are in an order of no meaning."""
    texts = [path.read_text("utf-8") for path in sorted(_DOCUMENTS.glob("*.md"))]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(EMBEDDED_TOKENIZER)
    documents: list[list[int]] = [tokenizer(text)["input_ids"] for text in texts]
    following = list(chain.from_iterable(documents * 2))
    starts = accumulate(map(len, documents[:-1]), initial=0)
    rows = torch.tensor([following[start : start + length] for start in starts])
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(_PAIR_SEED))]
