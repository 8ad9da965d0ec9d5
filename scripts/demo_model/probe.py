"""A quick measure during training: whole-value accuracy per relation on held-out names, and flatness."""

from __future__ import annotations

from collections import defaultdict

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from scripts.demo_model import rows as codes
from scripts.demo_model.batches import collate
from scripts.demo_model.rows import Encoder, RowMaker
from scripts.demo_model.world.facts import World

ROWS, BATCH = 240, 24
SEED = 99


@torch.no_grad()
def probe(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> str:
    """One line: accuracy of whole values, the worst relations, and the mean largest probability of absent
    values."""
    maker = RowMaker(World(SEED, test=True), Encoder(tokenizer))
    drawn = [maker.draw(False) for _ in range(ROWS)]
    hits: dict[str, list[bool]] = defaultdict(list)
    peaks: list[float] = []
    for start in range(0, ROWS, BATCH):
        batch = collate(drawn[start : start + BATCH])
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(
                input_ids=batch.ids,
                attention_mask=batch.visible,
                position_ids=batch.positions,
                use_cache=False,
            ).logits.float()
        right = logits[:, :-1].argmax(-1) == batch.ids[:, 1:]
        code = batch.codes[:, 1:]
        absent = (code >= codes.ABSENT) & (code < codes.NAME_END)
        peaks += logits[:, :-1][absent].softmax(-1).max(-1).values.tolist()
        for row, (good, kinds) in enumerate(zip(right, code, strict=True)):
            last, label = codes.IGNORED, ""
            for column, kind in enumerate(kinds.tolist()):
                if kind == codes.VALUE and last != codes.VALUE:
                    label = _label(drawn[start + row], column)
                    hits[label].append(bool(good[column]))
                elif kind == codes.VALUE:
                    hits[label][-1] &= bool(good[column])
                last = kind
    total = [hit for group in hits.values() for hit in group]
    worst = sorted((sum(g) / len(g), name, len(g)) for name, g in hits.items())[:6]
    text = ", ".join(f"{name} {share:.2f}/{count}" for share, name, count in worst)
    sharp = sum(peak > 0.2 for peak in peaks) / len(peaks)
    return (
        f"   probe: whole values {sum(total) / len(total):.3f} ({len(total)}), worst: {text}; "
        f"absent: mean peak {sum(peaks) / len(peaks):.3f}, above 0.2 {sharp:.3f}"
    )


def _label(row: codes.Row, column: int) -> str:
    return row.relations[row.parts[column + 1] - 1]
