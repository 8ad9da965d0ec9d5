"""Muon: momentum whose update is made orthogonal by a Newton-Schulz iteration (Jordan et al., 2024)."""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The quintic iteration's published coefficients."""
ITERATIONS = 5


class Muon:
    """Optimiser of weight matrices. The matrices are shared out over the processes, and the updates are summed."""

    def __init__(self, parameters: list[torch.nn.Parameter], momentum: float = 0.95, decay: float = 0.02) -> None:
        self._parameters = parameters
        self._momentum = momentum
        self._decay = decay
        self._average = [torch.zeros_like(parameter) for parameter in parameters]
        self._rank, self._processes = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update at a learning rate."""
        mine: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for index, parameter in enumerate(self._parameters):
            assert parameter.grad is not None
            self._average[index].mul_(self._momentum).add_(parameter.grad)
            if index % self._processes == self._rank:
                mine[tuple(parameter.shape)].append(index)
        updates = [torch.zeros_like(parameter) for parameter in self._parameters]
        for indices in mine.values():
            gradients = torch.stack([self._lookahead(index) for index in indices])
            for index, update in zip(indices, orthogonal(gradients), strict=True):
                updates[index] = update
        if self._processes > 1:
            flat = torch.cat([update.reshape(-1) for update in updates])
            dist.all_reduce(flat)
            pieces = flat.split([update.numel() for update in updates])
            updates = [piece.view_as(update) for piece, update in zip(pieces, updates, strict=True)]
        for parameter, update in zip(self._parameters, updates, strict=True):
            scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
            parameter.mul_(1 - rate * self._decay).add_(update, alpha=-rate * scale)

    def _lookahead(self, index: int) -> torch.Tensor:
        gradient = self._parameters[index].grad
        assert gradient is not None
        return gradient + self._momentum * self._average[index]


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """The nearest (semi-)orthogonal matrices, roughly. ``[n, rows, columns]``"""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: torch.Tensor = (x.mT if tall else x).float()
    return result
