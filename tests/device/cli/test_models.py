"""`dragon models`: a file is imported, listed, checked and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.common.model.gguf_file import CONTEXT, write_gguf
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
    first, context, vocabulary, one, four, tokenizers = found.stdout.splitlines()
    assert "M parameters in " in first
    assert context.startswith(f"context: {CONTEXT} tokens; each takes ")
    assert vocabulary.endswith("an answer ends with 2")
    assert one.startswith("a token with 1 document: ") and four.startswith("a token with 4 documents: ")
    assert "has another tokenizer: the sides can't answer together" in tokenizers

    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    damaged = dragon("models", "check", str(file), **place)
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
    assert done.stdout.splitlines()[-1].endswith("has the same tokenizer")
