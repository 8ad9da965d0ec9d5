"""Records how often SmolLM2 accepts what it drafts with coarser weights: confidence and acceptance at each position.

    python -m scripts.train_policy.recording

The drafters are the target with its weights rounded to a few bits, as a device would hold it that is too small for the
target. Answers are drawn from the target at temperature 1. A position's acceptance is the probability Σ min(p, q), for
the drafter's distribution q and for q rounded to each resolution.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from common.draft_policy.values import RESOLUTIONS
from common.engine.model.configured import load_format, model_place
from common.engine.model.conversation import Conversation
from common.engine.model.loading import load_model
from common.engine.model.prompt import query_tokens
from common.sampling.lattice import quantise
from device.settings import DeviceSettings
from scripts.daemons import ROOT
from scripts.simulated_rounds.confidences import Recorded

RECORD: Final = Path(__file__).with_name("recorded.safetensors")
BITS: Final = (6, 5, 4)  # of the drafters' weights
ANSWERS: Final = 24
TRAINED_ON: Final = 16  # of them; the others are held out
TOKENS: Final = 80  # of an answer
_QUERY: Final = "What does this entry say? Explain it to somebody who has never been there, and what to do with it."
_GROUP: Final = 32  # weights that share a scale
_SEED: Final = 1

Model = Any  # of transformers, which has no types


def name_of(bits: int) -> str:
    """A drafter's name, in the record and in tables."""
    return f"{bits} bits"


@cache
def recorded(held_out: bool) -> Mapping[str, Recorded]:
    """The answers' positions by drafter: those to train on, or those held out."""
    arrays = load_file(RECORD)
    rows = slice(TRAINED_ON, None) if held_out else slice(TRAINED_ON)
    found = {}
    for name in map(name_of, BITS):
        confidences = arrays[f"{name}, confidences"][rows].ravel().astype(np.float64)
        whole, *rounded = arrays[f"{name}, acceptances"][:, rows].reshape(len(RESOLUTIONS) + 1, -1).astype(np.float64)
        found[name] = Recorded(confidences, whole, dict(zip(RESOLUTIONS, rounded, strict=True)))
    return found


def main() -> None:
    """Draw answers of the target, compare each drafter with it behind every token, and write the record."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="dragon-record-") as folder, torch.no_grad():
        settings = DeviceSettings(data=Path(folder), model="auto")
        loaded = load_model(model_place(settings.model, settings.models), None, "cpu", "float32")
        form = load_format(settings, loaded.tokenizer)
        put = form.query(Conversation.of(_QUERY))
        query = query_tokens(loaded.tokenizer, put.text, put.controls)
        texts = [path.read_text("utf-8").strip() for path in sorted((ROOT / "cloud" / "sample_library").glob("*.md"))]
        answers = list(_drawn(loaded.model, [[*form.document_tokens(text), *query] for text in texts[:ANSWERS]]))
        laws = [_laws(loaded.model, answer) for answer in answers]
        arrays: dict[str, NDArray[np.float16]] = {}
        for bits in BITS:
            drafter = _rounded(loaded.model, bits)
            found = [_compared(p, _laws(drafter, answer)) for p, answer in zip(laws, answers, strict=True)]
            name = name_of(bits)
            arrays[f"{name}, confidences"] = np.stack([confidences for confidences, _ in found])
            arrays[f"{name}, acceptances"] = np.stack([acceptances for _, acceptances in found], axis=1)
            means = arrays[f"{name}, acceptances"].mean(axis=(1, 2), dtype=np.float64)
            print(f"{name}: accepted {means[0]:.3f}, rounded", *(f"{mean:.3f}" for mean in means[1:]), flush=True)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, RECORD)  # else it mixes them up


def _drawn(model: Model, prompts: list[list[int]]) -> Iterator[torch.Tensor]:
    """Prompt and answer [tokens] of each."""
    torch.manual_seed(_SEED)
    length = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "pad_token_id": 0}
    for prompt in prompts:
        yield model.generate(torch.tensor([prompt]), do_sample=True, temperature=1.0, top_k=0, top_p=1.0, **length)[0]


def _laws(model: Model, answer: torch.Tensor) -> NDArray[np.float32]:
    """Next-token distributions in place of each of the answer's tokens, [tokens, vocab]."""
    laws: NDArray[np.float32] = model(answer[None]).logits[0, -TOKENS - 1 : -1].softmax(-1).numpy()
    return laws


def _compared(
    target: NDArray[np.float32], drafter: NDArray[np.float32]
) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Confidences [tokens], and acceptances [whole and each resolution, tokens]."""
    acceptances = [
        [np.minimum(p, told).sum() for told in (q, *(quantise(q, each) / each for each in RESOLUTIONS))]
        for p, q in zip(target, drafter, strict=True)
    ]
    return drafter.max(axis=1).astype(np.float16), np.array(acceptances, np.float16).T


def _rounded(model: Model, bits: int) -> Model:
    """A copy with the layers' weights rounded to the nearest of 2^`bits` steps, groups of weights sharing a scale."""
    coarse = copy.deepcopy(model)
    most = 2 ** (bits - 1) - 1
    for name, layer in coarse.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":  # which is the embedding
            groups = layer.weight.reshape(-1, _GROUP)
            scale = groups.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / most
            layer.weight.copy_(((groups / scale).round() * scale).reshape(layer.weight.shape))
    return coarse


if __name__ == "__main__":
    main()
