"""`dragon models`: a file is imported, listed, checked and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.configuration.configuration import load_settings
from common.daemon.side import SideRuntime
from common.engine.model.decoder import Decoder
from device.settings import DeviceSettings
from tests.common.engine.model.gguf_file import CONTEXT, write_gguf
from tests.common.engine.model.tiny_models import make_model
from tests.device.cli.conftest import Dragon


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "Tiny.gguf"
    write_gguf(path)
    return path


def test_from_file_to_nothing(dragon: Dragon, file: Path, tmp_path: Path) -> None:
    place = {"DRAGON_DEVICE_MODELS": str(tmp_path / "models"), "DRAGON_DEVICE_THREADS": "1"}
    made = dragon("models", "import", str(file), **place)
    assert made.returncode == 0
    folder = Path(made.stdout.strip())
    assert folder.parent == tmp_path / "models"
    assert dragon("models", "list", **place).stdout.split("\t")[0] == folder.name

    found = dragon("models", "check", str(file), **place)
    assert found.returncode == 0, found
    first, context, numbers, attention, vocabulary, one, four, tokenizers, scorers = found.stdout.splitlines()
    assert "M parameters in " in first
    assert context.startswith(f"context: {CONTEXT} tokens; each takes ")
    assert numbers.startswith("numbers: ")
    assert attention.startswith("attention: ") and attention.endswith(" see all earlier tokens")
    assert vocabulary.endswith("an answer ends with 2")
    assert one.startswith("a token with 1 document: ") and four.startswith("a token with 4 documents: ")
    assert "has another tokenizer: the sides can't answer together" in tokenizers
    assert scorers.startswith(
        "document weights: contrast; the other side's, as configured on this machine, are lexical"
    )

    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    damaged = dragon("models", "check", str(folder), **place)
    assert (damaged.returncode, damaged.stdout) == (2, "")
    assert "model.safetensors changed since the import" in damaged.stderr

    assert dragon("models", "remove", folder.name, **place).returncode == 0
    assert not folder.exists() and file.exists()
    assert dragon("models", "list", **place).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("import", "/nowhere.gguf"), "can't be read: no such file"),
        (("import", "model.bin"), "only .gguf files are imported"),
        (("remove", "Tiny"), "no such import"),
        (("remove", "../models"), "no such import"),
        (("check", "/nowhere"), "no such folder"),
    ],
)
def test_what_cannot_be_done(dragon: Dragon, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = dragon("models", *arguments, DRAGON_DEVICE_MODELS=str(tmp_path / "models"))
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_both_sides_with_the_embedded_model_fit(dragon: Dragon) -> None:
    done = dragon("models", "check", DRAGON_DEVICE_THREADS="1")
    assert done.returncode == 0, done
    *_, tokenizers, weights = done.stdout.splitlines()
    assert tokenizers.endswith("has the same tokenizer")
    assert weights == "document weights: lexical, on the other side, too"


def test_what_the_layers_see(dragon: Dragon, tmp_path: Path) -> None:
    folder = make_model("gemma2", tmp_path / "model")
    done = dragon("models", "check", str(folder), DRAGON_DEVICE_THREADS="1")
    assert done.returncode == 0, done
    assert "attention: 2 layers see the last 6 tokens, 1 layer sees all earlier tokens" in done.stdout.splitlines()


def test_a_missing_table_of_word_weights_is_told_before_the_model_is_loaded(
    dragon: Dragon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_model("llama", tmp_path / "model")
    lexical = {"DRAGON_DEVICE_SCORER": "lexical", "DRAGON_DEVICE_MODEL": str(folder)}
    loads: list[object] = []
    monkeypatch.setattr(Decoder, "load", lambda *model, **options: loads.append(model))
    done = dragon("models", "check", **lexical)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{folder / 'idf.safetensors'} is missing: lexical weights need a table" in done.stderr
    settings = load_settings(DeviceSettings, overrides={"model": str(folder), "scorer": "lexical", "data": tmp_path})
    with pytest.raises(ValueError, match="is missing: lexical weights need a table"):
        SideRuntime("device", settings)
    assert loads == []
