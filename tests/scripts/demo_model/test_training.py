"""Training of the embedded models: what is asked for can be done, and what can't is said at once."""

from __future__ import annotations

import random
import sys
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.demo_model import __main__ as command
from scripts.demo_model.batches import POOL, batches
from scripts.demo_model.rows import Row


def test_a_row_that_is_longer_than_a_batch_is_one_by_itself() -> None:
    maker: Any = SimpleNamespace(draw=lambda easy: Row([7] * 5, [0] * 5, [0] * 5))
    found = batches(maker, random.Random(1), budget=4, easy=True, copies=0.0)
    assert [each.tokens for each in islice(found, POOL + 1)] == [5] * (POOL + 1)


def test_one_model_does_not_begin_both(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["demo_model", "all", "--initial", "build/target"])
    with pytest.raises(SystemExit):
        command._options()
    assert "name the step target or draft" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["demo_model", "draft", "--initial", "build/draft"])
    assert command._options().step == "draft"
