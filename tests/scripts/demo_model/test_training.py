"""Training of the embedded models, in short."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.numpy import load_file

from scripts.demo_model.__main__ import MODELS, SHIPPED, main
from scripts.demo_model.rows import POOL, Row, batches


def test_a_row_that_is_longer_than_a_batch_is_one_by_itself() -> None:
    maker: Any = SimpleNamespace(draw=lambda easy: Row([7] * 5, [0] * 5, [0] * 5))
    found = batches(maker, random.Random(1), budget=4, easy=True, copies=0.0)
    assert [each.tokens for each in islice(found, POOL + 1)] == [5] * (POOL + 1)


@pytest.mark.suite
def test_the_command_makes_what_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = ["--work", str(tmp_path / "work"), "--models", str(tmp_path / "models"), "--steps", "2"]
    monkeypatch.setattr("sys.argv", ["demo_model", *short, "--batch-tokens", "512"])
    main()
    for file in (MODELS / "tokenizer").iterdir():
        assert (tmp_path / "models" / "tokenizer" / file.name).read_bytes() == file.read_bytes()
    for name in ("target", "draft"):
        for file in (MODELS / name / each for each in SHIPPED if each.endswith(".json")):
            assert (tmp_path / "models" / name / file.name).read_bytes() == file.read_bytes()
        made, shipped = (load_file(folder / name / SHIPPED[-1]) for folder in (tmp_path / "models", MODELS))
        assert {key: value.shape for key, value in made.items()} == {key: value.shape for key, value in shipped.items()}
