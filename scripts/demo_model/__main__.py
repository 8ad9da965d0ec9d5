"""Makes the demonstration model: ``python -m scripts.demo_model all`` goes through every step.

The data are drawn while training, from seeded generators, so there is nothing to download or to prepare.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from common.scoring.lexical import LexicalScorer
from scripts.demo_model import evaluate, samples, tokenizer
from scripts.demo_model.generation import Decoder
from scripts.demo_model.retrieval import Retriever
from scripts.demo_model.train import Plan, train

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "common" / "demo_model"
SHIPPED = ("config.json", "generation_config.json", "model.safetensors")


def main() -> None:
    """Run the chosen step, or all of them."""
    options = _options()
    work: Path = options.work
    if options.step in ("tokenizer", "all"):
        tokenizer.save(work / "tokenizer")
    for name in ("target", "draft"):
        if options.step in (name, "all"):
            train(
                Plan(
                    name=name,
                    tokenizer=work / "tokenizer",
                    output=work / name,
                    steps=options.steps,
                    minutes=options.minutes,
                    processes=options.processes,
                    batch_tokens=options.batch_tokens,
                    seed=options.seed,
                    initial=options.initial,
                )
            )
    if options.step in ("install", "all"):
        install(work)
    if options.step in ("samples", "all"):
        for question in samples.write_samples(_decoder(), Retriever(), ROOT):
            print(f"{question['needs']}: {question['question']} {question['answer']}")
    if options.step in ("evaluate", "all"):
        table = evaluate.evaluate(MODELS, evaluate.EvaluationPlan(options.libraries, options.questions))
        evaluate.save(table, MODELS / "evaluation.json")
        print(evaluate.show(table))


def install(work: Path) -> None:
    """Copy what was made in ``work`` into the package."""
    shutil.copytree(work / "tokenizer", MODELS / "tokenizer", dirs_exist_ok=True)
    for name in ("target", "draft"):
        (MODELS / name).mkdir(parents=True, exist_ok=True)
        for file in SHIPPED:
            shutil.copy(work / name / file, MODELS / name / file)


def _decoder() -> Decoder:
    target = Qwen2ForCausalLM.from_pretrained(MODELS / "target", dtype=torch.float32)
    return Decoder(
        target,
        PreTrainedTokenizerFast.from_pretrained(MODELS / "tokenizer"),
        LexicalScorer.load(MODELS / "tokenizer"),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.demo_model", description=__doc__)
    steps = ("all", "tokenizer", "target", "draft", "install", "samples", "evaluate")
    parser.add_argument("step", choices=steps)
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "demo-model", help="where to train")
    parser.add_argument("--minutes", type=float, default=60.0, help="longest training time of one model")
    parser.add_argument("--steps", type=int, default=100_000, help="largest number of training steps of one model")
    parser.add_argument("--processes", type=int, default=2, help="training processes of one thread each")
    parser.add_argument("--batch-tokens", type=int, default=3072, help="tokens per step and process")
    parser.add_argument("--initial", type=Path, help="continue from this model folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--libraries", type=int, default=5, help="libraries per evaluation set")
    parser.add_argument("--questions", type=int, default=20, help="questions per library and type")
    options = parser.parse_args()
    if options.initial and options.step == "all":
        parser.error("--initial is a model of one size, and `all` trains two: name the step target or draft")
    return options


if __name__ == "__main__":
    main()
