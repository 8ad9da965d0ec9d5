"""Time per token against documents per side, context, answer length and vocabulary."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from common.model.decoder import Decoder
from common.model.profile import profile_decode
from common.scoring.lexical import LexicalScorer
from common.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from scripts.bench.engine.distributions import FRESH, Logits
from scripts.bench.engine.pair import SIDES, Pair, Sources, make_request
from scripts.bench.engine.per_token import totals
from scripts.bench.measuring import Spread

DOCUMENT_TOKENS = 120
STEPS = 12  # decode steps per measured point


@dataclass(frozen=True, slots=True)
class Engine:
    """Synthetic distributions of this size, for the work beside the model."""

    vocabulary: int = 2048
    documents: int = 4
    tokens: int = 48
    temperature: float = 1.0
    seed: int = 21

    def laps(self) -> list[float]:
        """Microseconds of processor time beside the model, per token, on the device."""
        random = np.random.default_rng(self.seed)
        scorer = LexicalScorer.from_table(random.uniform(1, 6, self.vocabulary).astype(np.float32))
        sources = {}
        for side in SIDES:
            documents = [random.integers(self.vocabulary, size=DOCUMENT_TOKENS).tolist() for _ in range(self.documents)]
            logits = Logits.draw(side, self.vocabulary, self.documents, "flat", self.seed)
            sources[side] = Sources(logits, scorer.begin(documents[0][:12], documents))
        pair = Pair(make_request(temperature=self.temperature), self.vocabulary, sources)
        pair.run(self.tokens + FRESH)
        return totals(pair.halves["device"].stages.laps[FRESH:])


def step_by_documents(counts: Sequence[int], context: int = 256) -> dict[int, Spread]:
    """Milliseconds of the embedded model's decode step with so many documents as rows."""
    decoder = Decoder.load(str(EMBEDDED_MODEL), tokenizer=str(EMBEDDED_TOKENIZER), threads=1)
    return {count: _step(decoder, count, [context])[context] for count in counts}


def step_by_context(contexts: Sequence[int], rows: int = 4) -> dict[int, Spread]:
    """Milliseconds of a decode step at so many tokens of context: the embedded model's shape with random weights,
    since the embedded one stops at 1,024 tokens.
    """
    with tempfile.TemporaryDirectory(prefix="dragon-bench-") as folder:
        decoder = _long_decoder(Path(folder), max(contexts) + STEPS + 1)
        return _step(decoder, rows, contexts)


def _step(decoder: Decoder, rows: int, contexts: Sequence[int]) -> dict[int, Spread]:
    profile = profile_decode(decoder, rows, list(contexts), STEPS)
    return {context: Spread.of((1e3 * profile.seconds[profile.contexts == context]).tolist()) for context in contexts}


def _long_decoder(folder: Path, context: int) -> Decoder:
    config = Qwen2Config.from_pretrained(EMBEDDED_MODEL)
    config.max_position_embeddings = context
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return Decoder.load(str(folder), tokenizer=str(EMBEDDED_TOKENIZER), threads=1)
