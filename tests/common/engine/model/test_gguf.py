"""GGUF files are imported once, whole, and whatever is no model is refused in a sentence."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from common.engine.model import gguf
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.gguf import _WORK, MANIFEST, damaged_files, imported, is_complete, is_gguf
from common.process.python import child_command
from common.process.startup import Startup
from tests.common.engine.model.gguf_file import CHAT_TEMPLATE, CONTEXT, END, Weights, write_gguf


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads") / "Tiny.Q.gguf"


@pytest.fixture(scope="module")
def weights(file: Path) -> Weights:
    return write_gguf(file)


@dataclass(frozen=True, slots=True)
class Together:
    """Results of two that asked for the same import at the same time, and how often it was made."""

    folders: list[Path]
    conversions: int


@pytest.fixture(scope="module")
def together(file: Path, weights: Weights, models: Path) -> Together:
    conversions = list[str]()

    def counted(module: str, *arguments: str) -> list[str]:
        conversions.append(module)
        return child_command(module, *arguments)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(gguf, "child_command", counted)
        folders = [*pool.map(imported, [file, file], [models, models])]
    return Together(folders, len(conversions))


@pytest.fixture(scope="module")
def folder(together: Together) -> Path:
    return together.folders[0]


@pytest.fixture
def copy(folder: Path, models: Path, tmp_path: Path) -> Path:
    """The import's folder in a copy of the folder of models."""
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    return tmp_path / folder.name


def test_the_numbers_are_those_of_the_file(folder: Path, weights: Weights) -> None:
    stored = load_file(folder / "model.safetensors")
    for name, in_file in (
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight"),
    ):
        assert stored[name].dtype == torch.bfloat16
        assert torch.equal(stored[name], torch.from_numpy(weights[in_file]).to(torch.bfloat16))


def test_it_runs_like_any_other_model(folder: Path) -> None:
    decoder = Decoder.load(str(folder), threads=1, dtype="float32")
    assert decoder.eos == {END}
    assert decoder.max_context == CONTEXT
    text = "What is <|im_end|>?"
    ids = decoder.tokenizer.encode(text)
    assert END not in ids
    assert decoder.tokenizer.decode(ids) == text
    logits = decoder.open([ids], ids[:3], 2)[1]
    assert torch.isfinite(logits).all()
    assert (folder / "chat_template.jinja").read_text() == CHAT_TEMPLATE


def test_it_is_imported_once(folder: Path, file: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(*arguments: object, **options: object) -> None:
        raise AssertionError("it was converted again")

    monkeypatch.setattr(gguf, "child_command", no_more)
    assert imported(file, models) == folder


def test_what_is_not_whole_is_made_again(file: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is missing; what comes of it, the next test sees."""
    whole = {path.name: path.read_bytes() for path in copy.iterdir()}
    weights, tokenizer, manifest = copy / "model.safetensors", copy / "tokenizer.json", copy / MANIFEST
    convert = sys.executable, "-c", "print('it was begun'); raise SystemExit(1)"
    monkeypatch.setattr(gguf, "child_command", lambda *_: convert)
    for harm in (
        lambda: weights.write_bytes(b""),
        lambda: weights.write_bytes(whole[weights.name][:100]),
        tokenizer.unlink,
        manifest.unlink,
        lambda: manifest.write_text("[]"),
    ):
        harm()
        assert not is_complete(copy)
        with pytest.raises(ModelError, match="it was begun"):
            imported(file, copy.parent)
        copy.mkdir(exist_ok=True)
        for name, content in whole.items():
            (copy / name).write_bytes(content)
        assert is_complete(copy)


def test_a_changed_byte_is_found_and_mended(
    file: Path, folder: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a conversion that comes to what the first one came to."""
    again = f"import shutil, sys; shutil.copytree({str(folder)!r}, sys.argv[1], ignore=lambda *_: [{MANIFEST!r}])"
    monkeypatch.setattr(gguf, "child_command", lambda _, __, made: [sys.executable, "-S", "-c", again, made])
    assert damaged_files(copy) == []
    path = copy / "model.safetensors"
    whole = path.read_bytes()
    content = bytearray(whole)
    content[-1] ^= 1
    path.write_bytes(content)
    assert is_complete(copy)
    assert damaged_files(copy) == ["model.safetensors"]
    killed = copy.parent / f"{_WORK}0a1b" / "model"  # what an import leaves that is killed
    killed.mkdir(parents=True)
    said = list[str]()
    assert imported(file, copy.parent, Startup(said.append)) == copy
    assert said and not any("another process" in line for line in said)  # which nobody waited for
    assert damaged_files(copy) == []
    assert path.read_bytes() == whole
    assert [path for path in copy.parent.iterdir() if path.is_dir()] == [copy]


def test_two_at_a_time_do_the_work_once(together: Together) -> None:
    first, second = together.folders
    assert first == second
    assert together.conversions == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "can't be read: no such file"),
        (b"", "is not a GGUF file"),
        (b"PK\x03\x04", "is not a GGUF file"),
        (b"GGUF" + bytes(60), "can't be imported"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    file, models = tmp_path / "x.gguf", tmp_path / "models"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ModelError, match=said) as refused:
        imported(file, models)
    assert str(file) in str(refused.value) and "\n" not in str(refused.value)
    assert not models.exists() or not [path for path in models.iterdir() if path.is_dir()]


def test_what_counts_as_one() -> None:
    assert is_gguf("~/models/Tiny.Q4_1.GGUF")
    assert not is_gguf("org/model-gguf")
