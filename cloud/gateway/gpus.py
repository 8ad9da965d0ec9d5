"""Divides the GPUs of a machine among the workers on it."""

from __future__ import annotations

import os
from typing import Final

import torch

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"  # names the GPUs that a process may use; CUDA reads it once
_SLICE: Final = "MIG-"  # begins the name of a part of a GPU, of which CUDA shows a process the first that is named


def take_gpu(place: int, workers: int) -> float:
    """Choose the GPU of the worker at `place`, of so many on this machine, before CUDA is used in this process; the
    share of that GPU which is its own. The workers take turns in taking one; slices of a GPU count as GPUs.
    """
    visible = os.environ.get(VISIBLE)
    gpus = 0 if torch.version.hip else torch.cuda.device_count()
    if gpus and visible is not None and visible.startswith(_SLICE):
        gpus = len(visible.split(","))
    if gpus > 1:
        os.environ[VISIBLE] = gpu_at(place % gpus, visible)
    return 1.0 / workers_on(place, workers, gpus)


def gpu_at(index: int, visible: str | None) -> str:
    """The name of the GPU of this index; `visible` is the list that names those of this process, if there is one."""
    return str(index) if visible is None else visible.split(",")[index].strip()


def workers_on(place: int, workers: int, gpus: int) -> int:
    """The number of workers on the GPU of the one at `place`."""
    return workers if gpus == 0 else len(range(place % gpus, workers, gpus))


def keep_to(share: float) -> None:
    """Bound the GPU memory of this process to its share of all that the GPU has."""
    if share < 1.0 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)
