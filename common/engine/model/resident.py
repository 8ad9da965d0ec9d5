"""Reads a model into memory of its own: a mapping of its files would change, or be gone, when somebody writes there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_utils import str_to_torch_dtype

from common.engine.model.errors import ModelError
from common.engine.model.quiet import quiet_loading
from common.engine.model.safetensors_header import StoredTensor, read_header

_TYPES = str_to_torch_dtype | {"F8_E8M0": torch.float8_e8m0fnu}
_HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A tensor in a file, which Transformers reads when it comes to it, in one of several threads."""

    path: Path
    file: BinaryIO
    tensor: StoredTensor

    def get_dtype(self) -> str:
        return self.tensor.dtype

    def __getitem__(self, part: Any) -> Tensor:
        numbers = torch.empty(self.tensor.shape, dtype=_TYPES[self.tensor.dtype])
        buffer: Any = numbers.reshape(-1).view(torch.uint8).numpy()
        memory = memoryview(buffer)
        done, size = 0, self.tensor.last - self.tensor.first
        if size != memory.nbytes:
            raise ModelError(f"{self.path}: a tensor has {size} bytes where its shape needs {memory.nbytes}")
        while done < size:
            # One call reads 2 GiB at most.
            read = os.preadv(self.file.fileno(), [memory[done:]], self.tensor.first + done)
            if read == 0:
                raise ModelError(f"{self.path}: has become shorter while it was read; get it again")
            done += read
        return numbers[part]


def read_whole(
    outline: PreTrainedModel, files: Sequence[Path], dtype: torch.dtype, attention: str, place: torch.device
) -> tuple[PreTrainedModel, Mapping[str, Any]]:
    """The model of which `outline` is one without storage, and what Transformers reports of loading it from `files`.

    Takes the model's memory at `place`, on a GPU with that of a few tensors beside it, and where numbers change their
    type that of some tensors. Raises `ModelError`, and what comes of files that do not belong to the model.
    """
    kind: Any = type(outline)
    with ExitStack() as opened, quiet_loading():
        shards = [(path, opened.enter_context(path.open("rb"))) for path in files]
        tensors = {
            name: _Stored(path, file, tensor) for path, file in shards for name, tensor in read_header(path).items()
        }
        model, report = kind.from_pretrained(
            None,
            config=outline.config,
            state_dict=tensors,
            dtype=dtype,
            attn_implementation=attention,
            device_map=None if place.type == "cpu" else {"": place},
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # to be told of in the report, like what is missing
        )
    _settle(model, dtype)
    return model, report


def leave_files(model: torch.nn.Module) -> None:
    """Copy what of a loaded model is a mapping of its files into memory of its own, tensor by tensor."""
    for part in (*model.parameters(), *model.buffers()):
        if part.device.type == "cpu":
            part.data = part.data.clone()


def _settle(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Have a model's numbers be of one type, but for those that it keeps in float32.

    What was stored in a quantised form has come in a half precision of its own.
    """
    for part in (*model.parameters(), *model.buffers()):
        if part.dtype in _HALVES and part.dtype != dtype:
            part.data = part.data.to(dtype)
