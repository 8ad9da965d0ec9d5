"""Inflated checkpoints compute what the small one computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from common.engine.model.decoder import Decoder
from tests.common.engine.inflated import inflate
from tests.common.engine.model.streamed_models import TOKENIZER, answer
from tests.common.engine.model.tiny_models import DEMO


@pytest.mark.parametrize(("layers", "inner"), [(4, 704), (9, None), (5, 1000)])
def test_it_computes_what_the_model_computes(layers: int, inner: int | None, tmp_path: Path) -> None:
    small = Decoder.load(str(DEMO / "target"), tokenizer=TOKENIZER)
    large = Decoder.load(str(inflate(DEMO / "target", tmp_path, layers, inner)), tokenizer=TOKENIZER)
    assert len(large.layout.layers) == layers
    for mine, its in zip(answer(small)[1], answer(large)[1], strict=True):
        if not len(mine):
            continue
        assert float((mine - its).abs().max()) <= 1e-6 * float(mine.abs().max())
        assert torch.equal(mine.argmax(-1), its.argmax(-1))


def test_nothing_that_is_added_could_be_left_out(tmp_path: Path) -> None:
    folder = inflate(DEMO / "target", tmp_path, 8)
    zero, whole = [], 0
    for path in folder.glob("*.safetensors"):
        for name, weight in load_file(path).items():
            whole += 1
            if not weight.any():
                zero.append(name)
    assert len(zero) == 2 * 4 and all(name.endswith(("o_proj.weight", "down_proj.weight")) for name in zero)
    assert whole == 2 + 8 * 12


def test_smaller_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can't be made smaller"):
        inflate(DEMO / "target", tmp_path, 3)
