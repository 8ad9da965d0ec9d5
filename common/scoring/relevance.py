"""Models of a document's relevance to a text: cross-encoders, or bi-encoders.

Every text or pair is its own forward pass without padding, so a score has the same bits beside any other documents. A
text that is too long loses its beginning: an answer's newest tokens matter most.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from common.engine.model.errors import ModelError
from common.engine.model.files import ENCODER_POSITIONS, check_sizes, stored_weights, weight_files
from common.engine.model.imports import quiet_loading
from common.engine.model.loading import TorchDevice, check_numbers, check_weights, leave_files, resolve_device
from common.engine.model.tokenizer import load_pretrained_tokenizer
from common.library import checkpoint
from common.library.embedder import SentenceTransformerEmbedder, unit_vectors
from common.library.errors import EmbedderError
from common.library.modules import check_activation
from common.scoring.lagged import Relevance

_CROSS_ENCODER_HEAD = "ForSequenceClassification"
_NO_LIMIT = 10**6  # tokenizers without a limit state an absurd length


def kind_of(folder: Path) -> Literal["cross-encoder", "bi-encoder"]:
    """Kind of the model in `folder`. Raises `ValueError` for any other kind."""
    described = checkpoint.configuration(folder)
    architectures = described.get("architectures") if isinstance(described, dict) else None
    if any(str(name).endswith(_CROSS_ENCODER_HEAD) for name in architectures or ()):
        return "cross-encoder"
    stated = checkpoint.configuration(folder, "config_sentence_transformers.json")
    other = isinstance(stated, dict) and stated.get("model_type") not in (None, "SentenceTransformer")
    if (folder / "modules.json").is_file() and not other:
        return "bi-encoder"
    raise ValueError(
        f"scorer_model: {folder} is neither a cross-encoder (no …{_CROSS_ENCODER_HEAD} in config.json) nor a"
        " sentence-transformers embedding model; give the folder or the Hub id of one of them"
    )


class BiEncoder:
    """The cosine of two embeddings, with the answer so far as the text."""

    def __init__(self, embedder: SentenceTransformerEmbedder) -> None:
        """Raises `ValueError` or `EmbedderError`, one sentence."""
        self._embedder = embedder
        file = embedder.tokenizer_file
        if not file.is_file():
            raise ValueError(f"the scorer's model in {file.parent} has no fast tokenizer ({file.name})")
        self._tokenizer = _plain(Tokenizer.from_file(str(file)))
        self._room = embedder.max_tokens(queries=True) - self._tokenizer.num_special_tokens_to_add(False)
        if self._room <= 0:
            raise ValueError(
                f"the instruction for queries of the scorer's model in {file.parent} leaves no room for one"
            )

    @property
    def identity(self) -> str:
        """`bi-encoder:<model>:cosine`. The model's hash covers the number type."""
        return f"bi-encoder:{self._embedder.identity}:cosine"

    def relevance(self, documents: Sequence[str]) -> Relevance:
        """Embeds the documents once, at the first call."""
        vectors: list[NDArray[np.float64]] = []

        def cosines(text: str) -> NDArray[np.float64]:
            if not vectors:
                vectors.extend(self._vector(document, False) for document in documents)
            against = self._vector(end_of(text, self._room, self._tokenizer), True)
            # One product per document: a matrix product's order of sums may depend on other rows.
            return np.asarray([np.dot(vector, against) for vector in vectors], dtype=np.float64)

        return cosines

    def _vector(self, text: str, query: bool) -> NDArray[np.float64]:
        vector: NDArray[np.float64] = unit_vectors(self._embedder, [text], query)[0].astype(np.float64)
        return vector


class CrossEncoder:
    """A one-label sequence classifier of text and document; its raw logit is the score.

    Computes in float32.
    """

    def __init__(self, folder: Path, torch_device: TorchDevice) -> None:
        """Raises `ValueError`, one sentence."""
        self._model = _load(folder, torch_device)
        self._pretrained = _load_tokenizer(folder)
        self._tokenizer = _plain(Tokenizer.from_str(self._pretrained.backend_tokenizer.to_str()))
        self._longest = _longest(self._pretrained, self._model.config)
        self._types = getattr(self._model.config, "type_vocab_size", 1) > 1  # type ids distinguish the two texts
        self._special = self._tokenizer.num_special_tokens_to_add(True)
        if self._longest <= self._special + 1:
            raise ValueError(f"scorer_model: {folder} reads {self._longest} tokens, too few for a text and a document")
        if len(self._pretrained) > self._model.config.vocab_size:
            raise ValueError(f"scorer_model: the tokenizer in {folder} has more ids than the model")
        self.relevance(["warm"])("warm")  # a model's first pass takes many times as long
        self.identity = f"cross-encoder:{checkpoint.identity(folder)}:float32:logit"

    def relevance(self, documents: Sequence[str]) -> Relevance:
        return lambda text: np.asarray([self._logit(text, document) for document in documents], dtype=np.float64)

    def _logit(self, text: str, document: str) -> float:
        pair = self._pretrained(
            *self._fitted(text, document),
            truncation="longest_first",  # a cut text may be a token or two longer
            max_length=self._longest,
            split_special_tokens=True,  # a document that spells "[SEP]" is text
            return_token_type_ids=self._types,
            return_tensors="pt",
        )
        with torch.inference_mode():
            logits: torch.Tensor = self._model(**pair.to(self._model.device)).logits
        return float(logits.reshape(-1)[0])

    def _fitted(self, text: str, document: str) -> tuple[str, str]:
        """Cuts the text to half of the room and the document's unused rest."""
        room = self._longest - self._special
        taken = len(self._tokenizer.encode(document, add_special_tokens=False).ids)
        return end_of(text, room - min(taken, room // 2), self._tokenizer), document


def end_of(text: str, tokens: int, tokenizer: Tokenizer) -> str:
    encoding = tokenizer.encode(text, add_special_tokens=False)
    if len(encoding.ids) <= tokens:
        return text
    start: int = encoding.offsets[-tokens][0]
    return text[start:]


def load_relevance_model(
    model: str | None, embedder: SentenceTransformerEmbedder, torch_device: TorchDevice
) -> BiEncoder | CrossEncoder:
    """The model of a folder or Hub id; None means the library's `embedder`.

    Raises `ValueError`, one sentence.
    """
    if model is None:
        return BiEncoder(embedder)
    try:
        folder = checkpoint.find_checkpoint(model, "scorer's model").resolve()
    except (FileNotFoundError, ModelError) as error:
        raise ValueError(f"scorer_model: {error}") from error
    if kind_of(folder) == "cross-encoder":
        return CrossEncoder(folder, torch_device)
    try:
        return BiEncoder(SentenceTransformerEmbedder(str(folder), torch_device))
    except (EmbedderError, ValueError) as error:
        raise ValueError(f"scorer_model: {error}") from error


def _load(folder: Path, torch_device: TorchDevice) -> Any:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    modules = checkpoint.configuration(folder, "modules.json")
    if isinstance(modules, list) and len(modules) > 1:
        raise ValueError(f"scorer_model: {folder} puts {len(modules)} modules together; only plain classifiers are run")
    try:
        if not weight_files(folder):
            raise ModelError(f"{folder}: no safetensors weights; pickled weights are not read")
        path, stored = folder / "config.json", stored_weights(folder)
        check_sizes(path, stored, ENCODER_POSITIONS)
        own = checkpoint.configuration(folder).get("sentence_transformers")
        check_activation(path, own.get("activation_fn") if isinstance(own, dict) else None)
        config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        make: Any = AutoModelForSequenceClassification
        check_numbers(folder, stored, lambda: make.from_config(config))
        with quiet_loading():
            loaded: Any = AutoModelForSequenceClassification.from_pretrained(
                folder,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # the report shows it, like missing weights
            )
        model, report = loaded
        leave_files(model)
        check_weights(folder.name, model, report)  # a missing head would be random numbers, different at every start
    except Exception as error:  # wrong values in settings raise any error
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"scorer_model: the cross-encoder in {folder} can't be loaded: {reason}") from error
    if model.config.num_labels != 1:
        raise ValueError(f"scorer_model: {folder} has {model.config.num_labels} labels; a scorer has one, relevance")
    return model.eval().requires_grad_(False).to(resolve_device(torch_device))


def _load_tokenizer(folder: Path) -> Any:
    try:
        pretrained = load_pretrained_tokenizer(folder)
    except Exception as error:  # the library raises bare exceptions for a file it can't parse
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"scorer_model: the tokenizer in {folder} can't be loaded: {reason}") from error
    if getattr(pretrained, "backend_tokenizer", None) is None:
        raise ValueError(f"scorer_model: {folder} has no fast tokenizer (tokenizer.json); convert it first")
    return pretrained


def _plain(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _longest(pretrained: Any, config: Any) -> int:
    """Most tokens of a pair, including special ones, as in sentence-transformers."""
    stated = int(pretrained.model_max_length)
    positions = int(getattr(config, "max_position_embeddings", None) or _NO_LIMIT)
    if stated < _NO_LIMIT:
        return min(stated, positions)
    # Models that count positions from after the padding token have fewer than their embeddings.
    return positions - 1 - int(getattr(config, "pad_token_id", None) or 0)
