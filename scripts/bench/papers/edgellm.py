"""EdgeLLM (Xu et al.): speed-up over a target that is read from the disk, and each technique's part (Fig. 22)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from common.configuration.settings import EMBEDDED_DRAFT, EMBEDDED_MODEL
from common.figures import REFERENCE
from scripts.bench.asking import Mode, answered, make_mode, own_folder
from scripts.bench.papers.figure import Claim, Figure, mean, times
from scripts.bench.results import Results
from scripts.bench.rows import Row, pivot, where
from scripts.bench.synthetic_model import FLAGS
from scripts.bench.workload import Texts
from scripts.daemons import Pair

MIB: Final = 2**20
TASKS: Final = {"natural": 32, "forced": 48}  # tokens; forced answers go on where the models disagree


def _way(name: str, growth: str, ahead: bool = False, **fields: Any) -> Mode:
    return make_mode(name, method="edgellm", sources="device", documents=1, growth=growth, ahead=ahead, **fields)


STD: Final = _way("Std: target, read when needed", "none")
SPL: Final = _way("SPL: target, read ahead", "none")
SP: Final = _way("SP: chain of 6", "chain")
SI: Final = _way("SI: 4 branches of 6", "width", tree_size=24)
BNV: Final = _way("BNV and SF: adaptive tree", "adaptive")
PP: Final = _way("and PP: drafting meanwhile", "adaptive", ahead=True)
OURS: Final = _way("best first, drafting meanwhile", "best-first", ahead=True)
WAYS: Final = (SPL, SP, SI, BNV, PP, OURS)


def inflate(folder: Path, layers: int, inner: int) -> Path:
    """Write the embedded target with more layers and wider ones; it computes the same, and has more to read.

    What is added writes nothing into the residual stream.
    """
    small: Any = Qwen2ForCausalLM.from_pretrained(EMBEDDED_MODEL, dtype=torch.float32)
    config = Qwen2Config.from_pretrained(EMBEDDED_MODEL)
    own = config.num_hidden_layers
    config.num_hidden_layers, config.intermediate_size = layers, inner
    config.layer_types = ["full_attention"] * layers
    large: Any = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        large.model.embed_tokens.load_state_dict(small.model.embed_tokens.state_dict())
        large.model.norm.load_state_dict(small.model.norm.state_dict())
        for place, layer in enumerate(large.model.layers):
            for part in (layer.self_attn.o_proj, layer.mlp.down_proj):
                part.weight.zero_()
            if place % (layers // own) == 0:
                for name, weight in small.model.layers[place * own // layers].named_parameters():
                    layer.get_parameter(name)[tuple(slice(size) for size in weight.shape)] = weight
    large.save_pretrained(folder, max_shard_size="64MB")
    return folder


def _cases(short: bool) -> Sequence[Row]:
    if short:
        return [{"layers": 8, "inner": 704, "mib": 88, "mbps": 400, "questions": 1, "most": 6}]
    return [{"layers": 16, "inner": 5036, "mib": 112, "mbps": 300, "questions": 3, "most": 0}]


def _answers(results: Results, case: Row) -> Iterator[Row]:
    """Answers of a device whose target does not fit its memory; all ways give the target's tokens."""
    texts = Texts.draw_joint(case["questions"])
    with own_folder() as folder:
        target = inflate(folder / "target", case["layers"], case["inner"])
        (folder / "data").mkdir()
        texts.fill_libraries(folder / "data")
        model = {"model": str(EMBEDDED_DRAFT), "dtype": "float32", **FLAGS}
        large = {"local_target": target, "memory_budget": case["mib"] * MIB, "emulate_read_mbps": case["mbps"]}
        device = {**model, **large, "draft_model": EMBEDDED_DRAFT, "kv_bytes": 32 * MIB, "document_store_bytes": 0}
        seen: dict[tuple[str, int], str] = {}
        pairs = ((False, (STD, *WAYS)),) if case["most"] else ((False, (STD,)), (True, WAYS))
        for read_ahead, ways in pairs:
            with Pair(folder / "data", device | {"read_ahead": read_ahead}, model) as pair:
                pair.complete(texts.questions[0], max_tokens=2, **SP.fields)
                for way in ways:
                    results.say(way.name)
                    for row in _of(pair, way, texts, case):
                        pieces = row.pop("pieces")
                        if seen.setdefault((row["task"], row["question"]), pieces) != pieces:
                            raise RuntimeError(f"{way.name}: other tokens than the target's")
                        yield row


def _of(pair: Pair, way: Mode, texts: Texts, case: Row) -> Iterator[Row]:
    for task, tokens in TASKS.items():
        fields: dict[str, Any] = {"temperature": 0.0, "seed": 7, "max_tokens": case["most"] or tokens}
        if task == "forced":
            fields["logit_bias"] = {"1": -100}  # the end of the sequence
        slow = way in (STD, SPL)
        if task == "forced" and slow:
            continue  # a pass for each token, whatever it is
        for number, question in enumerate(texts.questions[: 1 if slow else None]):
            report = pair.complete(question, **fields, **way.fields)["dragon"]
            figures, row = report["figures"], answered(report)
            yield {
                "mode": way.name,
                "task": task,
                "question": number,
                "tokens": row["tokens"],
                "pieces": row["pieces"],
                "ms": row["whole"] / row["tokens"],
                "per_pass": row["tokens"] / figures["rounds"],
                "waited": 1e3 * figures["waited_seconds"] / row["tokens"],
            }


def _show(results: Results, rows: list[Row]) -> list[Claim]:
    def shown(those: list[Row]) -> str:
        return f"{mean(those, 'ms'):.0f}; {mean(those, 'per_pass'):.1f}"

    case = rows[0]
    note = (
        f"Whole answers: ms per token; tokens that a pass decides. Target in {case['mib']} MiB, read at {case['mbps']} "
        "MB/s as a phone's storage would; the paper's devices are Jetsons and phones."
    )
    results.table("EdgeLLM Fig. 15, 16, 22: way by way", pivot(rows, ["mode"], "task", shown), note)

    def ms(way: Mode, task: str) -> float:
        return mean(where(rows, mode=way.name, task=task), "ms")

    std = ms(STD, "natural")
    title = "EdgeLLM Fig. 22: ms per token, one technique after another (paper: 2.9 to 9.3 times below Std in all)"
    with results.figure("edgellm-22", len(TASKS), title=title) as axes:
        for axis, task in zip(axes, TASKS, strict=True):
            ways = (STD, SP, SI, BNV, PP, OURS)
            axis.barh(
                [way.name for way in reversed(ways)], [std if way is STD else ms(way, task) for way in reversed(ways)]
            )
            for most in (2.9, 9.3):
                axis.axvline(std / most, label=f"Std / {most}", **REFERENCE)
            axis.set_title(f"{task} answers")
            axis.set_xlabel("ms per token")

    def gains(over: Mode, way: Mode) -> str:
        return " / ".join(times(ms(over, task), ms(way, task)) for task in TASKS)

    both = " / ".join(times(std, ms(PP, task)) for task in TASKS)
    ours = " / ".join(times(std, ms(OURS, task)) for task in TASKS)
    return [
        Claim("speed-up over Std, as published: natural / forced", "2.9× to 9.3×", both),
        Claim("the same, best first (this project's)", "–", ours),
        Claim("over SP", "1.34× to 2.00×", gains(SP, PP)),
        Claim("over SI", "up to 1.66×", gains(SI, PP)),
        Claim("BNV and SF together, over SP", "1.4× to 2.1×, 1.08× to 1.20×", gains(SP, BNV)),
        Claim("PP", "up to 1.51×", gains(BNV, PP)),
    ]


FIGURES: Final = (Figure("EdgeLLM 22", "device daemon, weights read at a set rate", _cases, _answers, _show),)
