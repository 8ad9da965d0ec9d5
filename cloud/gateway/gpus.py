"""Divides the GPUs of a machine among the workers on it."""

from __future__ import annotations

import os
from typing import Final

import torch

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"  # read once by CUDA
_SLICE: Final = "MIG-"  # part of a GPU; CUDA uses only the first one listed


def take_gpu(place: int, workers: int) -> float:
    """Chooses a worker's GPU. Returns its share of that GPU's memory.

    Call before using CUDA. The machine's `workers` take GPUs, or slices, in turn.
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
    """Returns the number of workers on a worker's GPU."""
    return workers if gpus == 0 else len(range(place % gpus, workers, gpus))


def keep_to(share: float) -> None:
    """Limits this process to its share of the GPU's memory."""
    if share < 1.0 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)
