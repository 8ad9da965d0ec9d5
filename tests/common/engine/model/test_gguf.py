"""GGUF files are imported once, whole, and whatever is no model is refused in a sentence."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace
from transformers import Gemma2Config, Gemma3TextConfig, LlamaConfig, Phi3Config, Starcoder2Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from common.engine.model import gguf
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.gguf import (
    _WORK,
    CONVERSION,
    MANIFEST,
    WEIGHTS,
    damaged_files,
    follow_rules,
    imported,
    is_complete,
    is_gguf,
    with_own_tokens,
)
from common.engine.model.gguf_conversion import complete, convert, scaled_rotation
from common.engine.model.tokenizer import Tokenizer as ModelTokenizer
from common.process.lifetime import Startup
from common.process.machine import child_command
from tests.common.engine.model import gguf_file
from tests.common.engine.model.gguf_file import CHAT_TEMPLATE, CONTEXT, END, HEADS, THETA, WIDTH, Weights, write_gguf
from tests.support.json_files import change


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


def test_converted_numbers_are_those_of_the_file(file: Path, weights: Weights, tmp_path: Path) -> None:
    convert(file, tmp_path / "made", converted=True)
    stored = load_file(tmp_path / "made" / "model.safetensors")
    for name, in_file in (
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight"),
    ):
        assert stored[name].dtype == torch.bfloat16
        assert torch.equal(stored[name], torch.from_numpy(weights[in_file]).to(torch.bfloat16))


def test_it_runs_like_any_other_model(folder: Path) -> None:
    decoder = Decoder.load(str(folder), threads=1, dtype="float32")
    assert decoder.eos == {END, 0}  # <|im_end|>, as the file states, and <|endoftext|>
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
    weights, tokenizer, manifest = copy / WEIGHTS, copy / "tokenizer.json", copy / MANIFEST
    convert = sys.executable, "-c", "print('it was begun'); raise SystemExit(1)"
    monkeypatch.setattr(gguf, "child_command", lambda *_: convert)
    for harm in (
        lambda: weights.write_bytes(b""),
        lambda: weights.write_bytes(whole[weights.name][:100]),
        tokenizer.unlink,
        manifest.unlink,
        lambda: manifest.write_text("[]"),
        lambda: change(manifest, conversion=CONVERSION - 1),
    ):
        harm()
        assert not is_complete(copy)
        with pytest.raises(ModelError, match="it was begun"):
            imported(file, copy.parent)
        copy.mkdir(exist_ok=True)
        for name, content in whole.items():
            (copy / name).write_bytes(content)
        assert is_complete(copy)


@pytest.mark.parametrize("share", [0.001, 0.02, 0.5, 0.999])
def test_one_that_is_cut_off_is_refused_in_a_sentence(
    file: Path, weights: Weights, tmp_path: Path, share: float
) -> None:
    cut, whole = tmp_path / "cut.gguf", file.read_bytes()
    cut.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ModelError, match=r"^it is cut off or damaged; get it again$"):
        convert(cut, tmp_path / "made")


def test_another_file_by_that_name_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for content, said in (
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        (b"<html>", "no GGUF"),
    ):
        (tmp_path / "x.gguf").write_bytes(content)
        with pytest.raises(ModelError, match=said):
            convert(tmp_path / "x.gguf", tmp_path / "made")


def test_an_import_of_another_release_can_not_be_checked(copy: Path) -> None:
    change(copy / MANIFEST, conversion=CONVERSION - 1)
    with pytest.raises(ModelError, match=r"by another release; name the \.gguf file"):
        damaged_files(copy)


def test_a_changed_byte_is_found_and_mended(
    file: Path, folder: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a conversion that comes to what the first one came to."""
    again = f"import shutil, sys; shutil.copytree({str(folder)!r}, sys.argv[1], ignore=lambda *_: [{MANIFEST!r}])"
    monkeypatch.setattr(gguf, "child_command", lambda _, __, made: [sys.executable, "-S", "-c", again, made])
    assert damaged_files(copy) == []
    path = copy / "tokenizer.json"
    whole = path.read_bytes()
    content = bytearray(whole)
    content[-1] ^= 1
    path.write_bytes(content)
    assert is_complete(copy)
    assert damaged_files(copy) == ["tokenizer.json"]
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


LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


class TestScaledPositions:
    """Transformers leaves out how positions are scaled in a GGUF file, and the model would go wrong without a word."""

    @staticmethod
    def rotation(folder: Path) -> dict[str, Any]:
        """Rotations as the configuration in `folder` describes them."""
        described: dict[str, Any] = json.loads((folder / "config.json").read_text())["rope_parameters"]
        return described

    @staticmethod
    def divisors() -> NDArray[np.float32]:
        """Llama 3.1's, out of Transformers' own frequencies, as llama.cpp keeps them."""
        size = WIDTH // HEADS
        config = LlamaConfig(
            hidden_size=WIDTH,
            num_attention_heads=HEADS,
            max_position_embeddings=131_072,
            rope_parameters={"rope_type": "llama3", "rope_theta": THETA, **LLAMA3},
        )
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
        plain = THETA ** (-torch.arange(0, size, 2) / size)
        return (plain / scaled).numpy().astype(np.float32)

    def test_of_llama_3(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "x.gguf", changed={"rope_freqs.weight": self.divisors()})
        convert(tmp_path / "x.gguf", tmp_path / "made")
        assert self.rotation(tmp_path / "made") == {"rope_type": "llama3", "rope_theta": THETA, **LLAMA3}

    def test_of_a_file(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "x.gguf", scaling={"type": "yarn", "factor": 4.0, "original_context_length": 32})
        convert(tmp_path / "x.gguf", tmp_path / "made")
        scaled = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
        assert self.rotation(tmp_path / "made") == {"rope_theta": THETA, **scaled}

    @pytest.mark.parametrize(
        ("stated", "read"),
        [
            ({"type": "none"}, {}),
            ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
            (
                {"type": "yarn", "factor": 4.0, "original_context_length": 32, "finetuned": True},
                {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
            ),
        ],
    )
    def test_by_what_the_metadata_say(self, stated: dict[str, Any], read: dict[str, Any]) -> None:
        assert scaled_rotation({"rope_type": "default", "rope_theta": THETA}, stated, None) == read

    def test_of_the_layers_that_see_everything(self) -> None:
        config: Any = Gemma3TextConfig()
        windowed = dict(config.rope_parameters["sliding_attention"])
        complete(config, {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}, None)
        assert config.rope_parameters["full_attention"]["rope_type"] == "linear"
        assert config.rope_parameters["full_attention"]["factor"] == 8.0
        assert config.rope_parameters["sliding_attention"] == windowed

    def test_divisors_that_change_nothing(self) -> None:
        assert scaled_rotation({"rope_theta": THETA}, {}, [1.0] * 4) == {}

    @pytest.mark.parametrize(
        ("stated", "divisors", "said"),
        [
            ({}, [1.0, 2.0, 3.0, 4.0], r"\(rope_freqs\.weight\) otherwise than Llama 3\.1's"),
            ({"type": "longrope", "attn_factor": 1.2}, None, r"scaled as longrope \(attn_factor, type\)"),
            (
                {"type": "yarn", "factor": 4.0, "original_context_length": 32, "yarn_log_multiplier": 0.1},
                None,
                "as yarn",
            ),
        ],
    )
    def test_in_ways_that_are_not_read(self, stated: dict[str, Any], divisors: list[float] | None, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            scaled_rotation({"rope_theta": THETA}, stated, divisors)


def test_a_base_of_rotations_that_transformers_leaves_out() -> None:
    config = Starcoder2Config()
    complete(config, {"rope.freq_base": 999_999.4375}, None)
    assert config.rope_parameters is not None
    assert config.rope_parameters["rope_theta"] == 999_999.4375


@pytest.mark.parametrize(
    ("kind", "width", "heads", "size", "layers", "scalar"),
    [
        (Gemma2Config, 4608, 32, 128, 46, 144),
        (Gemma3TextConfig, 5376, 32, 128, 62, 168),
        (Gemma3TextConfig, 2560, 8, 256, 34, 256),
    ],
)
def test_scores_of_gemma(kind: Any, width: int, heads: int, size: int, layers: int, scalar: int) -> None:
    """As the configurations of 27B, 27B and 4B have it, of which a GGUF file says nothing."""
    config = kind(hidden_size=width, num_attention_heads=heads, head_dim=size, num_hidden_layers=layers)
    complete(config, {}, None)
    assert config.query_pre_attn_scalar == scalar


def test_a_window_that_transformers_leaves_out() -> None:
    config, own = Phi3Config(sliding_window=None), Phi3Config(sliding_window=64)
    for each in (config, own):
        complete(each, {"attention.sliding_window": 2047}, None)
    assert (config.sliding_window, own.sliding_window) == (2047, 64)


class TestTokenizer:
    """Expected words are those of the models' own `tokenizer.json`, or of llama.cpp's vectors."""

    @pytest.mark.parametrize(
        ("rule", "text", "words"),
        [
            ("smollm", "on\n\n2024", ["on", "ĊĊ", "2", "0", "2", "4"]),
            ("gpt-2", "on\n\n2024", ["on", "Ċ", "Ċ", "2024"]),
            ("llama-bpe", "(on 12345", ["(on", "Ġ", "123", "45"]),
            ("qwen2", "(on 12", ["(on", "Ġ", "1", "2"]),
            ("tekken", "onTime 12", ["on", "Time", "Ġ", "1", "2"]),
            ("gpt-4o", "It's 12345", ["It's", "Ġ", "123", "45"]),
        ],
    )
    def test_words(self, rule: str, text: str, words: list[str]) -> None:
        tokenizer = Tokenizer(BPE())
        follow_rules(tokenizer, "gpt2", rule)
        assert [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] == words

    def test_an_unknown_rule(self) -> None:
        with pytest.raises(ValueError, match=r"a rule that is not known here \(somebodys\)"):
            follow_rules(Tokenizer(BPE()), "gpt2", "somebodys")

    @pytest.mark.parametrize(("rule", "tokens"), [("llama-bpe", ["abc"]), ("gpt-2", ["ab", "c"])])
    def test_a_word_of_the_vocabulary_is_one_token(self, rule: str, tokens: list[str]) -> None:
        names = ["a", "b", "c", "ab", "abc"]
        tokenizer = Tokenizer(BPE(vocab={name: number for number, name in enumerate(names)}, merges=[("a", "b")]))
        follow_rules(tokenizer, "gpt2", rule)
        assert tokenizer.encode("abc").tokens == tokens

    def test_spaces_of_sentencepiece(self) -> None:
        tokenizer = Tokenizer(BPE())
        tokenizer.pre_tokenizer = Metaspace(prepend_scheme="first")
        follow_rules(tokenizer, "llama", "default")
        assert tokenizer.normalizer.normalize_str(" a b") == "▁▁a▁b"
        assert json.loads(tokenizer.to_str())["pre_tokenizer"] is None
        bare = Tokenizer(BPE())
        bare.pre_tokenizer = Metaspace(prepend_scheme="never")
        follow_rules(bare, "llama", "default")
        assert bare.normalizer is None

    @pytest.mark.parametrize(
        "control",
        [
            ("<|endoftext|>", "<\uff5cUser\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"),  # not in bytes' letters
            ("<pad>", "<s>", "</s>"),  # without GPT-2's
        ],
    )
    def test_control_tokens(self, control: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tokens = [*control, *gguf_file._tokens()[len(control) :]]
        monkeypatch.setattr(gguf_file, "_tokens", lambda: tokens)
        write_gguf(tmp_path / "x.gguf")
        convert(tmp_path / "x.gguf", tmp_path / "made")
        made = ModelTokenizer.load(str(tmp_path / "made"))
        assert made.special_ids == {name: number for number, name in enumerate(control)}
        assert (made.size, made.eos) == (len(tokens), END)

    def test_spaces_that_are_a_token(self) -> None:
        tokenizer = Tokenizer(BPE(vocab={"a": 0, "Ġ": 1, "ĠĠ": 3}, merges=[]))  # as Transformers makes it
        own = with_own_tokens(tokenizer, ["a", "Ġ", "ĠĠ", "  "], [1, 1, 1, 4])
        follow_rules(own, "gpt2", "default")
        assert own.encode("a  a").ids == [0, 3, 0]
        assert own.token_to_id("ĠĠ") == 2

    def test_padding_is_no_part_of_it(self) -> None:
        """Models of one family pad their embeddings to different sizes."""
        tokenizer = Tokenizer(BPE(vocab={"a": 0, "b": 1}, merges=[]))
        tokens, types = ["a", "<unused>", "b"], [1, 5, 1]
        padded = with_own_tokens(tokenizer, [*tokens, "[PAD3]", "[PAD4]"], [*types, 5, 5])
        assert padded.to_str() == with_own_tokens(tokenizer, tokens, types).to_str()
        assert padded.get_vocab_size() == 3

    def test_of_a_file(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "x.gguf", split="smollm")
        convert(tmp_path / "x.gguf", tmp_path / "made")
        made = Tokenizer.from_file(str(tmp_path / "made" / "tokenizer.json"))
        assert made.encode("a\n\n2").tokens == ["a", "ĊĊ", "2"]


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        ("blk.1.ffn_up.weight", np.zeros(0, np.float32), r"missing weights: model\.layers\.1\.mlp\.up_proj\.weight"),
        ("blk.1.attn_norm.weight", np.ones(7, np.float32), r"weights of another shape: .*layers\.1\.input_layernorm"),
        ("blk.0.attn_q.bias", np.zeros(WIDTH, np.float32), r"blk\.0\.attn_q\.bias \(1 in all\) would not be used"),
        ("blk.0.attn_q_norm.weight", np.ones(8, np.float32), r"blk\.0\.attn_q_norm\.weight .* would not be used"),
    ],
)
def test_what_is_not_all_of_a_model_is_refused(
    name: str, tensor: NDArray[np.float32], said: str, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "x.gguf", changed={name: tensor})
    with pytest.raises(ValueError, match=said):
        convert(tmp_path / "x.gguf", tmp_path / "made")
    assert not (tmp_path / "made").exists()


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
