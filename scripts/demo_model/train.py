"""The models and their training: processes of one thread each, gradients averaged, answers weighted over text."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.multiprocessing.spawn import spawn
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from scripts.demo_model import rows as codes
from scripts.demo_model.rows import Batch, Encoder, RowMaker, batches, priors
from scripts.demo_model.tokenizer import EOS_ID, PAD_ID, VOCABULARY
from scripts.demo_model.world.library import World

ROPE_THETA = 10000.0
# (layer, head, offset): copying needs heads that look one and two tokens back; given, they need not be found.
PREVIOUS_TOKEN_HEADS = ((0, 0, 1), (0, 1, 1), (0, 2, 2), (0, 3, 3), (1, 0, 1), (1, 1, 2))
BIAS_AMPLITUDE = 6.0
BIAS_PAIRS = 8  # of a head's fastest rotary pairs, which carry the bias


SIZES = {"target": (4, 256, 704, 8), "draft": (3, 128, 352, 4)}  # layers, widths outside and inside, heads


def build(layers: int, hidden: int, intermediate: int, heads: int) -> Qwen2ForCausalLM:
    """A freshly initialised model."""
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        intermediate_size=intermediate,
        num_attention_heads=heads,
        num_key_value_heads=heads,
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
    """Set a head's query and key biases so that, under rotary embedding, its score peaks ``offset`` tokens back."""
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


WEIGHTS = {codes.TEMPLATE: 0.5, codes.VALUE: 3.0, codes.RESTATED: 1.0, codes.RANDOM: 1.0}
DOCUMENT_WEIGHT = 0.03
DOCUMENT_SAMPLE = 0.2  # share of the document tokens that the loss looks at, to spare the output layer
ABSENT_WEIGHT = 1.0
NAME_END_WEIGHT = 0.3
WARM_UP_STEPS = 40
FINAL_RATE = 0.02
EASY_COPIES, COPIES = 0.3, 0.05
# The share of facts in their answer's words, at first; the part of it that remains, and from which progress on.
CANONICAL, FINAL_CANONICAL, CANONICAL_UNTIL = 0.7, 0.2, 0.5
REPORT_EVERY, SAVE_EVERY = 25, 100
PROCESSES = 2  # of one thread each


@dataclass(frozen=True, slots=True)
class Plan:
    """One training run. It ends after ``steps`` or ``minutes``, whichever comes first."""

    name: str
    tokenizer: Path
    output: Path
    steps: int = 100_000
    minutes: float = 60.0
    batch_tokens: int = 3072
    easy_steps: int = 150
    rate: float = 2e-3
    matrix_rate: float = 0.01
    decay_share: float = 0.85
    seed: int = 1


def train(plan: Plan) -> None:
    """Run the plan."""
    plan.output.mkdir(parents=True, exist_ok=True)
    (plan.output / "rendezvous").unlink(missing_ok=True)
    spawn(_work, args=(plan,), nprocs=PROCESSES)


def _work(rank: int, plan: Plan) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(plan.seed)
    address = f"file://{(plan.output / 'rendezvous').absolute()}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=PROCESSES)
    try:
        _Trainer(plan, rank).run()
    finally:
        dist.destroy_process_group()


class _Trainer:
    def __init__(self, plan: Plan, rank: int) -> None:
        self._plan, self._rank = plan, rank
        self._tokenizer = PreTrainedTokenizerFast.from_pretrained(plan.tokenizer)
        self._priors = torch.from_numpy(priors(self._tokenizer))
        self._model = build(*SIZES[plan.name])
        self._model.train()
        self._parameters = list(self._model.parameters())
        named = list(self._model.named_parameters())
        matrices = [p for name, p in named if p.dim() > 1 and "embed" not in name]
        chosen = {id(p) for p in matrices}
        self._others = [p for p in self._parameters if id(p) not in chosen]
        self._adam = torch.optim.AdamW(self._others, lr=plan.rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        # Momentum whose update an iteration makes orthogonal (Jordan et al., 2024), scaled by the matrix's shape.
        self._muon = torch.optim.Muon(matrices, lr=plan.matrix_rate, weight_decay=0.02)
        self._started = time.monotonic()
        self._hits = self._values = 0  # tokens of values that are stated: right ones, and all
        self._seen = 0
        self._world = World(plan.seed)

    def run(self) -> None:
        progress = 0.0
        for step, batch in enumerate(self._stream(), start=1):
            self._world.canonical_share = CANONICAL * max(FINAL_CANONICAL, 1 - progress / CANONICAL_UNTIL)
            scale = self._scale(step - 1, progress)
            for optimiser, rate in ((self._adam, self._plan.rate), (self._muon, self._plan.matrix_rate)):
                for group in optimiser.param_groups:
                    group["lr"] = rate * scale
            self._loss(batch).backward()
            elapsed = (time.monotonic() - self._started) / 60
            progress = self._average_gradients(max(step / self._plan.steps, elapsed / self._plan.minutes))
            torch.nn.utils.clip_grad_norm_(self._others, 1.0)
            self._adam.step()
            self._muon.step()
            self._model.zero_grad(set_to_none=True)
            self._seen += batch.tokens * PROCESSES
            if self._rank == 0:
                self._report(step, elapsed, scale)
            if progress >= 1:
                break
        if self._rank == 0:
            self._model.save_pretrained(self._plan.output)

    def _stream(self) -> Iterator[Batch]:
        seed = self._plan.seed * 1000 + self._rank
        self._world = world = World(seed, long_share=codes.LONG_NAME_SHARE)
        maker = RowMaker(world, Encoder(self._tokenizer))
        random_ = random.Random(seed + 500)
        easy = batches(maker, random_, self._plan.batch_tokens, True, EASY_COPIES)
        yield from (next(easy) for _ in range(self._plan.easy_steps))
        yield from batches(maker, random_, self._plan.batch_tokens, False, COPIES)

    def _scale(self, step: int, progress: float) -> float:
        warm = min(1.0, (step + 1) / WARM_UP_STEPS)
        left = min(1.0, (1 - progress) / self._plan.decay_share)
        return warm * (FINAL_RATE + (1 - FINAL_RATE) * left)

    def _average_gradients(self, progress: float) -> float:
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        flat = torch.cat([g.view(-1) for g in gradients] + [torch.tensor([progress])])
        dist.all_reduce(flat)
        flat /= PROCESSES
        pieces = flat[:-1].split([g.numel() for g in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))
        return float(flat[-1])

    def _loss(self, batch: Batch) -> torch.Tensor:
        code = batch.codes[:, 1:]
        sampled = (code == codes.DOCUMENT) & (torch.rand(code.shape) < DOCUMENT_SAMPLE)
        chosen = (code > codes.DOCUMENT) | sampled
        with torch.autocast("cpu", torch.bfloat16):
            seen = {"input_ids": batch.ids, "attention_mask": batch.visible, "position_ids": batch.positions}
            output = self._model.model(**seen, use_cache=False)
            logits = self._model.lm_head(output.last_hidden_state[:, :-1][chosen])
        code, target = code[chosen], batch.ids[:, 1:][chosen]
        log_p = logits.float().log_softmax(-1)
        loss = functional.nll_loss(log_p, target, reduction="none")
        absent = code >= codes.ABSENT
        soft = -(self._priors[code[absent] - codes.ABSENT] * log_p[absent]).sum(-1)
        loss = torch.where(absent, torch.zeros_like(loss).masked_scatter(absent, soft), loss)
        weight = torch.full_like(loss, ABSENT_WEIGHT)
        weight[code == codes.NAME_END] = NAME_END_WEIGHT
        weight[code == codes.DOCUMENT] = DOCUMENT_WEIGHT / DOCUMENT_SAMPLE
        for kind, value in WEIGHTS.items():
            weight[code == kind] = value
        values = code == codes.VALUE
        self._values += int(values.sum())
        self._hits += int((log_p.detach().argmax(-1) == target)[values].sum())
        return (loss * weight).sum() / weight.sum()

    def _report(self, step: int, elapsed: float, scale: float) -> None:
        if step % REPORT_EVERY == 0:
            print(
                f"{self._plan.name} step {step} {elapsed:.1f} min {self._seen / 1e6:.2f}M tokens | "
                f"value accuracy {self._hits / max(1, self._values):.3f} rate {scale:.2f}",
                flush=True,
            )
            self._hits = self._values = 0
        if step % SAVE_EVERY == 0:
            self._model.save_pretrained(self._plan.output)
