"""The two models' sizes, their initialisation, and the optimiser of their matrices."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
import torch.distributed as dist
from transformers import Qwen2Config, Qwen2ForCausalLM

from scripts.demo_model.tokenizer import EOS_ID, PAD_ID, VOCABULARY

ROPE_THETA = 10000.0
PREVIOUS_TOKEN_HEADS = ((0, 0, 1), (0, 1, 1), (0, 2, 2), (0, 3, 3), (1, 0, 1), (1, 1, 2))
"""(layer, head, offset): copying needs heads that look one and two tokens back; given, they need not be
found."""
BIAS_AMPLITUDE = 6.0
BIAS_PAIRS = 8
"""So many of a head's fastest rotary pairs carry the bias."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


@dataclass(frozen=True, slots=True)
class Size:
    """The shape of a model."""

    layers: int
    hidden: int
    intermediate: int
    heads: int


SIZES = {"target": Size(4, 256, 704, 8), "draft": Size(3, 128, 352, 4)}


def build(size: Size) -> Qwen2ForCausalLM:
    """A freshly initialised model."""
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        intermediate_size=size.intermediate,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=EOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
    )
    model = Qwen2ForCausalLM(config)
    for layer, head, offset in PREVIOUS_TOKEN_HEADS:
        attend_to_offset(model, layer, head, offset)
    return model


@torch.no_grad()
def attend_to_offset(model: Qwen2ForCausalLM, layer: int, head: int, offset: int) -> None:
    """Set a head's query and key biases so that, under rotary embedding, its score peaks ``offset`` tokens
    back."""
    attention = model.model.layers[layer].self_attn
    width = attention.head_dim
    rows = slice(head * width, (head + 1) * width)
    pairs = min(BIAS_PAIRS, width // 2)
    frequencies = ROPE_THETA ** (-torch.arange(width // 2).float() / (width // 2))[:pairs]
    query, key = torch.zeros(width), torch.zeros(width)
    key[:pairs] = BIAS_AMPLITUDE
    query[:pairs] = BIAS_AMPLITUDE * torch.cos(offset * frequencies)
    query[width // 2 : width // 2 + pairs] = -BIAS_AMPLITUDE * torch.sin(offset * frequencies)
    attention.q_proj.weight[rows] *= 0.1
    attention.k_proj.weight[rows] *= 0.1
    attention.q_proj.bias[rows] = query
    attention.k_proj.bias[rows] = key


class Muon:
    """Momentum whose update a Newton-Schulz iteration makes orthogonal (Jordan et al., 2024).

    The matrices are shared out over the processes, and the updates are summed."""

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
