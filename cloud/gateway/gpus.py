"""Divides the GPUs of a machine among the workers on it."""

from __future__ import annotations

import os
from typing import Final

import torch

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"  # lists the GPUs that a process may use; CUDA reads it once
_SLICE: Final = "MIG-"  # name prefix of a part of a GPU; CUDA shows a process only the first listed part


def take_gpu(place: int, workers: int) -> float:
    """Chooses the GPU of the worker at `place`. Returns its share of that GPU's memory.

    Call before CUDA is used in this process. `workers` on this machine take the GPUs in turn. Slices of a GPU count
    as GPUs.
    """
    visible = os.environ.get(VISIBLE)
    gpus = 0 if torch.version.hip else torch.cuda.device_count()
    if gpus and visible is not None and visible.startswith(_SLICE):
        gpus = len(visible.split(","))
    if gpus > 1:
        os.environ[VISIBLE] = gpu_at(place % gpus, visible)
    return 1.0 / workers_on(place, workers, gpus)


def gpu_at(index: int, visible: str | None) -> str:
    """Returns the GPU's name in the list `visible`, or `index` without a list."""
    return str(index) if visible is None else visible.split(",")[index].strip()


def workers_on(place: int, workers: int, gpus: int) -> int:
    """Returns the number of workers on the GPU of the worker at `place`."""
    return workers if gpus == 0 else len(range(place % gpus, workers, gpus))


def keep_to(share: float) -> None:
    """Limits this process to its share of the GPU's total memory."""
    if share < 1.0 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)
