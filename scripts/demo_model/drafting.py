"""Agreement of the draft model with the target model, document by document."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from scripts.demo_model.generation import Case
from scripts.demo_model.tokenizer import EOS_ID


@torch.no_grad()
def draft_agreement(
    target: Qwen2ForCausalLM, draft: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, cases: Sequence[Case]
) -> dict[str, float]:
    """Over the positions of the right answers, with every retrieved document: the share of equal greedy choices, and
    the expected acceptance of a sampled proposal, ``sum(min(p, q))``."""
    equal, accepted, positions = 0.0, 0.0, 0
    for case in cases:
        query = tokenizer.encode(f"\nQuestion: {case.question}\nAnswer:", add_special_tokens=False)
        answer = tokenizer.encode(" " + case.answer, add_special_tokens=False)
        for text in case.private + case.public:
            document = tokenizer.encode(" " + text, add_special_tokens=False)
            ids = torch.tensor([[EOS_ID, *document, *query, *answer]])
            kept = len(answer) + 1
            p = target(input_ids=ids, logits_to_keep=kept).logits[0].softmax(-1)
            q = draft(input_ids=ids, logits_to_keep=kept).logits[0].softmax(-1)
            equal += float((p.argmax(-1) == q.argmax(-1)).sum())
            accepted += float(torch.minimum(p, q).sum())
            positions += kept
    return {"greedy": round(equal / positions, 3), "sampled": round(accepted / positions, 3)}
