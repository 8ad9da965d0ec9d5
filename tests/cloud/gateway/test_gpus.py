"""GPUs that local workers divide among them. There is none here: PyTorch's answers are made up."""

from __future__ import annotations

import os

import pytest
import torch

from cloud.gateway.gpus import VISIBLE, gpu_at, keep_to, take_gpu, workers_on


@pytest.mark.parametrize("gpus", [1, 2, 3, 8])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_shares_of_a_gpu_add_up(workers: int, gpus: int) -> None:
    """And no GPU is idle while another has two workers."""
    shares = [0.0] * gpus
    for place in range(workers):
        shares[place % gpus] += 1 / workers_on(place, workers, gpus)
    assert shares == pytest.approx([1.0] * min(workers, gpus) + [0.0] * max(0, gpus - workers))


@pytest.mark.parametrize(
    ("index", "visible", "name"), [(1, None, "1"), (0, "3,5", "3"), (1, "3, 5", "5"), (1, "GPU-8f,GPU-2c", "GPU-2c")]
)
def test_a_gpu_is_one_of_those_that_may_be_used(index: int, visible: str | None, name: str) -> None:
    assert gpu_at(index, visible) == name


@pytest.mark.parametrize(
    ("gpus", "place", "visible", "left", "share"),
    [
        (4, 2, None, "2", 1.0),
        (2, 3, "6,7", "7", 0.5),
        (2, 2, "6,7", "6", 0.5),
        (1, 1, "6", "6", 0.25),
        (1, 1, "MIG-a,MIG-b,MIG-c", "MIG-b", 1.0),  # CUDA shows one slice, however many are named
        (1, 3, "MIG-a, MIG-b", "MIG-b", 0.5),
        (0, 1, "MIG-a,MIG-b", "MIG-a,MIG-b", 0.25),
        (0, 0, None, None, 0.25),  # with a GPU that PyTorch can't count, they may all be on it
    ],
)
def test_a_worker_sees_its_own(
    gpus: int, place: int, visible: str | None, left: str | None, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv(VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)
    assert take_gpu(place, 4) == share
    assert os.environ.get(VISIBLE) == left


@pytest.mark.parametrize(("available", "share", "bounds"), [(True, 0.5, [0.5]), (True, 1.0, []), (False, 0.5, [])])
def test_memory_is_bounded_where_a_gpu_is_shared(
    available: bool, share: float, bounds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[float] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", found.append)
    keep_to(share)
    assert found == bounds
