"""The synthetic model: it hesitates as much as it is asked to, and does not end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from common.engine.model.decoder import Decoder
from scripts.bench.synthetic_model import make_model, nats, random_model


@pytest.mark.parametrize("entropy", [1.0, 3.0])
def test_a_wanted_entropy_and_no_end(tmp_path: Path, entropy: float) -> None:
    settings = make_model(tmp_path, entropy)
    decoder = Decoder.load(str(settings["model"]), tokenizer=str(settings["tokenizer"]), threads=1)
    generator = torch.Generator().manual_seed(3)
    texts = torch.randint(2, decoder.vocabulary, (24, 40), generator=generator).tolist()
    rows = [decoder.open([text], text[:8], 4)[1][0].softmax(-1) for text in texts]
    found = sum(map(nats, rows)) / len(rows)
    assert found == pytest.approx(entropy, rel=0.3)
    assert max(float(row[token]) for row in rows for token in decoder.eos) == 0.0


def test_it_is_the_same_whoever_makes_another_meanwhile() -> None:
    """Two pairs of daemons that are measured side by side give the same answers."""
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda place: random_model(None), range(2))
    alone = random_model(None).state_dict()
    for made in (one.state_dict(), other.state_dict()):
        assert all(torch.equal(made[name], weights) for name, weights in alone.items())


def test_an_entropy_that_no_vocabulary_has(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can't have an entropy of 9 nats"):
        make_model(tmp_path, 9.0)
