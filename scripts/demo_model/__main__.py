"""`make demo-model`: makes the demonstration model again, from its tokenizer to the files of the package.

The data are drawn while training, from seeded generators, so there is nothing to download or to prepare.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from scripts.demo_model import tokenizer
from scripts.demo_model.train import Plan, train

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "common" / "demo_model"
SHIPPED = ("config.json", "generation_config.json", "model.safetensors")


def main() -> None:
    """Make the tokenizer, train both models, and put everything into the package."""
    usual = Plan("target", Path(), Path())
    parser = argparse.ArgumentParser(prog="python -m scripts.demo_model", description=__doc__)
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "demo-model", help="where to train")
    parser.add_argument("--models", type=Path, default=MODELS, help="where the finished files go")
    parser.add_argument("--minutes", type=float, default=usual.minutes, help="longest training time of one model")
    parser.add_argument("--steps", type=int, default=usual.steps, help="largest number of steps of one model")
    parser.add_argument("--batch-tokens", type=int, default=usual.batch_tokens, help="per step and process")
    options = vars(parser.parse_args())
    work, models = options.pop("work"), options.pop("models")
    tokenizer.save(work / "tokenizer")
    shutil.copytree(work / "tokenizer", models / "tokenizer", dirs_exist_ok=True)
    for name in ("target", "draft"):
        train(Plan(name, work / "tokenizer", work / name, **options))
        (models / name).mkdir(parents=True, exist_ok=True)
        for file in SHIPPED:
            shutil.copy(work / name / file, models / name / file)


if __name__ == "__main__":
    main()
