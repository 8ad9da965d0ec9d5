"""The check of a GPU, as far as a processor can run it."""

from __future__ import annotations

import pytest
import torch

from scripts import gpu_check


def test_the_table_of_a_model(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the two daemons, which `repeats` compares."""
    monkeypatch.setattr(gpu_check, "_placements", lambda model, place: [("answers", "0 differ", "ok")])
    monkeypatch.setattr(gpu_check, "ROWS", (1, 2))
    assert gpu_check.main(["embedded", "--place", "cpu"]) == 0
    table = capsys.readouterr().out
    for line in ("bfloat16: loading", "int4: loading", "bfloat16: step of 2 rows", "int4: keys and values of 4 rows"):
        assert f"| {line}" in table
    assert "| bfloat16: the same bits in any company | bit-exact | ok |" in table


def test_a_wrong_line_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "check", lambda model, place: [("answers", "2 differ", "WRONG")])
    assert gpu_check.main(["--place", "cpu"]) == 1


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "finds no usable GPU" in capsys.readouterr().err
