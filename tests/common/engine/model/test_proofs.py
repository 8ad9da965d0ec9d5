"""A model is checked once on a machine, and again when anything changes on which that rests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from common.engine.model import decoder as module
from common.engine.model import proofs
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.probes import check_agreement, find_exactness, find_turns
from tests.common.engine.model.tiny_models import make_model


class Checked:
    """Loads one model, and knows whether it was checked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model, self.kept = make_model("llama", folder), folder / "kept"
        self._checks: list[str] = []
        monkeypatch.setattr(module, "check_agreement", self._counted("agreement", check_agreement))
        monkeypatch.setattr(module, "find_exactness", self._counted("exactness", find_exactness))
        monkeypatch.setattr(module, "find_turns", self._counted("turns", find_turns))

    def _counted(self, name: str, check: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            self._checks.append(name)
            return check(*arguments)

        return counted

    def load(self, **options: Any) -> Decoder:
        self._checks.clear()
        return Decoder.load(str(self.model), torch_device="cpu", proofs=self.kept, **options)

    def was_checked(self, **options: Any) -> bool:
        self.load(**options).close()
        assert self._checks in ([], ["agreement", "exactness", "turns"])
        return bool(self._checks)


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checked:
    return Checked(tmp_path, monkeypatch)


def test_once(checked: Checked) -> None:
    first = checked.load()
    assert first.rotation is not None
    assert not checked.was_checked()
    again = checked.load()
    assert again.exactness == first.exactness and again.rotation is not None
    for before, now in zip(first.rotation.layers, again.rotation.layers, strict=True):
        for turn, same in zip(before, now, strict=True):
            assert torch.equal(turn.angles, same.angles) and turn.interleaved == same.interleaved
    for each in (first, again):
        each.close()


def test_another_type_is_checked(checked: Checked) -> None:
    assert checked.was_checked(dtype="float32")
    assert checked.was_checked(dtype="bfloat16")
    assert not checked.was_checked(dtype="float32")


def test_other_weights_are_checked(checked: Checked, tmp_path: Path) -> None:
    assert checked.was_checked()
    checked.model = make_model("qwen2", tmp_path)
    assert checked.was_checked()


@pytest.mark.parametrize("change", ["variable", "code", "processor", "library"])
def test_what_it_rests_on(checked: Checked, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    assert checked.was_checked() and not checked.was_checked()
    with monkeypatch.context() as patch:
        match change:
            case "variable":
                patch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
            case "code":
                patch.setattr(proofs, "_code", lambda: "another")
            case "processor":
                patch.setattr(proofs, "_processor", lambda: ["model name: another"])
            case "library":
                patch.setattr(torch, "__version__", "0.0")
        assert checked.was_checked()
    assert not checked.was_checked()


def test_threads(checked: Checked) -> None:
    before = torch.get_num_threads()
    try:
        assert checked.was_checked(threads=1)
        assert checked.was_checked(threads=2)
    finally:
        torch.set_num_threads(before)


def test_a_flipped_bit_is_no_proof(checked: Checked) -> None:
    assert checked.was_checked()
    (file,) = checked.kept.iterdir()
    whole = file.read_bytes()
    for place in (whole.index(b"exact"), whole.index(b"turns") + 10, len(whole) - 9):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert checked.was_checked()
    file.write_bytes(whole[:20])
    assert checked.was_checked() and not checked.was_checked()


def test_a_model_that_can_not_be_served_is_refused_each_time(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ModelError("can't be served")

    monkeypatch.setattr(module, "check_agreement", refuse)
    for _ in range(2):
        with pytest.raises(ModelError, match="can't be served"):
            checked.load()
    assert not checked.kept.exists()


def test_a_folder_that_can_not_be_written_is_said(checked: Checked, caplog: pytest.LogCaptureFixture) -> None:
    checked.kept.touch()
    assert checked.was_checked()
    assert "can't be saved" in caplog.text
