"""Stored proofs about a model on this machine: a restart needs no new checks."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

import numba
import numpy as np
import torch
import transformers

from common.engine.model.exact import RowBlocks
from common.engine.model.loading import LoadedModel
from common.engine.model.probes import Turns
from common.process.files import private_folder, replacing
from proto.messages import Exactness

_MOST_BYTES: Final = 2**20
_CODE: Final = Path(__file__).resolve().parents[2]  # a change there can change a pass, except in the library
_ROOMS: Final = ("engine", "sampling")
# Variables that choose kernels, or the order of their sums.
_CHOOSING: Final = ("ATEN_", "DNNL_", "GOMP_", "KMP_", "MKL_", "NUMBA_", "OMP_", "ONEDNN_", "OPENBLAS_", "TORCH_")
_PROCESSOR: Final = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags", "Features")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Proof:
    """Agreement of packed with fresh passes, and the keys' turns if known."""

    exactness: Exactness
    turns: Turns | None


class Proofs:
    """The proof of one model on this machine, in a file of `folder`.

    The file name hashes the model, its type and threads, the code, the libraries, and the processor. Nothing is stored
    for a GPU.
    """

    def __init__(self, folder: Path, loaded: LoadedModel, blocks: RowBlocks) -> None:
        self._folder = folder
        self._key = _key(loaded, blocks) if loaded.torch_device.type == "cpu" else None

    def load(self) -> Proof | None:
        """The proof, or None if it is missing or damaged."""
        if self._key is None:
            return None
        try:
            with self._path.open("rb") as file:
                content = json.loads(file.read(_MOST_BYTES))
            exactness, turns = content["exactness"], content["turns"]
            if content == _written(self._key, exactness, turns) and exactness in get_args(Exactness):
                return Proof(exactness, turns)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        log.warning("the proof %s is damaged: the model is checked again", self._path)
        return None

    def save(self, proof: Proof) -> None:
        """Stores the proof if possible."""
        if self._key is None:
            return
        content = json.dumps(_written(self._key, proof.exactness, proof.turns))
        try:
            private_folder(self._folder)
            with replacing(self._path) as file:
                file.write(content.encode())
        except OSError as error:
            log.warning("the proofs of the model can't be saved: %s", error.strerror)

    @property
    def _path(self) -> Path:
        return self._folder / f"proof-{self._key}.json"


def _key(loaded: LoadedModel, blocks: RowBlocks) -> str:
    rests_on: list[Any] = [
        loaded.identity(),
        loaded.model.config.to_json_string(),
        loaded.window,
        loaded.max_context,
        loaded.tokenizer.size,
        str(loaded.model.dtype),
        [blocks.unit, blocks.most],
        torch.get_num_threads(),
        [torch.__version__, transformers.__version__, numba.__version__, np.__version__],
        torch.__config__.show(),
        torch.backends.cpu.get_cpu_capability(),
        platform.platform(),
        _processor(),
        {name: value for name, value in os.environ.items() if name.startswith(_CHOOSING)},
        _code(),
    ]
    return hashlib.sha256(json.dumps(rests_on, sort_keys=True).encode()).hexdigest()[:32]


def _written(key: str, exactness: object, turns: object) -> dict[str, Any]:
    told = {"key": key, "exactness": exactness, "turns": json.loads(json.dumps(turns))}
    return told | {"sha256": hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()}


def _processor() -> list[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return [platform.processor()]
    return sorted({line for line in lines if line.partition(":")[0].strip() in _PROCESSOR})


@cache
def _code() -> str:
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((_CODE / room).rglob("*.py")):
            digest.update(path.relative_to(_CODE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
