"""The document scorer from the settings."""

from __future__ import annotations

from common.configuration.settings import Settings
from common.engine.jobs import DocumentScorer
from common.engine.model.hub import place_of
from common.engine.model.tokenizer import Tokenizer
from common.library.embedder import SentenceTransformerEmbedder
from common.process.files import expanded
from common.scoring.lagged import LaggedScorer
from common.scoring.lexical import DEFAULT_SCALE, LexicalScorer, has_table
from common.scoring.relevance import BiEncoder, load_relevance_model
from common.scoring.static import ContrastScorer, StaticScorer

STATIC_SCALE = 20.0  # cosines of related texts differ by about 0.1: a factor of seven in weight
GAIN = 1.0  # a document that makes a token e times as likely weighs e times as much
LOGIT_SCALE = 1.0  # cross-encoders' training makes the logit the log-odds of relevance


def scorer_without_model(settings: Settings) -> DocumentScorer | None:
    """The scorer of `settings`; None for a cross-encoder.

    Instant, so called before any model loads. Raises `ValueError` if unavailable.
    """
    scale = settings.scorer_scale
    if settings.scorer_model is not None and settings.scorer != "cross-encoder":
        raise ValueError(f"scorer_model is for scorer = 'cross-encoder'; scorer is {settings.scorer!r}")
    if settings.scorer == "cross-encoder":
        return None
    named = settings.tokenizer or settings.model
    folder = place_of(named, settings.models) or expanded(named)
    if settings.scorer == "static":
        return StaticScorer(STATIC_SCALE if scale is None else scale)
    if settings.scorer == "contrast" or (settings.scorer == "auto" and not has_table(folder)):
        return ContrastScorer(STATIC_SCALE if scale is None else scale, GAIN)
    try:
        return LexicalScorer.load(folder, DEFAULT_SCALE if scale is None else scale)
    except ValueError as error:
        raise ValueError(f"{error} (or set scorer = 'contrast')") from None


def load_scorer(settings: Settings, tokenizer: Tokenizer, embedder: SentenceTransformerEmbedder) -> DocumentScorer:
    """The scorer of `settings`, for ids of `tokenizer` and a library of `embedder`.

    Raises `ValueError` if unavailable.
    """
    scorer = scorer_without_model(settings)
    if scorer is not None:
        return scorer
    model = load_relevance_model(settings.scorer_model, embedder, settings.torch_device)
    own = STATIC_SCALE if isinstance(model, BiEncoder) else LOGIT_SCALE
    scale = own if settings.scorer_scale is None else settings.scorer_scale
    return LaggedScorer(model, tokenizer.decode, settings.scorer_period, scale)
