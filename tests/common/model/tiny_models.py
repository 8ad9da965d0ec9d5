"""Small random models with real tokenizers, made in a second, and what plain Transformers says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerFast

from common.model.decoder import Decoder
from tests.common.model.architectures import FULL, MIXED, WINDOWED, configuration

DEMO = Path(__file__).resolve().parents[3] / "common" / "demo_model"
FAMILIES = (*FULL, *WINDOWED, *MIXED, "wide", "demo")
WIDE_TOKENS = 151_665  # ids of a Qwen2.5 tokenizer; its models pad the embedding to 151,936
WIDE_EMBEDDING = 151_936

# float32, different kernels and orders of summation: seen are differences up to 2e-6 of the largest logit.
TOLERANCE = 2e-5

TEXT = [
    "The best-selling simulation game is Harbor Town.",
    "Mona keeps her notes in a blue folder; the grüne Mappe is Jörg's.",
    "A répétition of words, words and words: 0123456789, 你好, 🙂.",
]


@dataclass(frozen=True, slots=True)
class Pair:
    """The decoder under test and the plain model with eager attention that it is compared with."""

    decoder: Decoder
    plain: Any
    folder: Path

    def fresh(self, tokens: Sequence[int]) -> Tensor:
        """Logits after every one of `tokens` from a pass without a cache, `[tokens, vocabulary]`."""
        with torch.inference_mode():
            logits: Tensor = self.plain(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits
        return logits[0, :, : self.decoder.vocabulary].float()

    def check(self, logits: Tensor, rows: Sequence[Sequence[int]], tolerance: float = TOLERANCE) -> None:
        """Every row of `logits` is what a fresh pass over the row's tokens gives."""
        assert logits.dtype == torch.float32
        assert logits.shape == (len(rows), self.decoder.vocabulary)
        for row, tokens in enumerate(rows):
            expected = self.fresh(tokens)[-1]
            assert float((logits[row] - expected).abs().max()) <= tolerance * float(expected.abs().max())


def fast_tokenizer(tokenizer: tokenizers.Tokenizer, **specials: str) -> PreTrainedTokenizerFast:
    """The tokenizer that would be loaded from the `tokenizer.json` of `tokenizer`."""
    make: Any = PreTrainedTokenizerFast
    wrapped: PreTrainedTokenizerFast = make(tokenizer_object=tokenizer, **specials)
    return wrapped


def random_model(config: PreTrainedConfig) -> Any:
    """A model with random weights."""
    maker: Any = AutoModelForCausalLM
    torch.manual_seed(11)
    return maker.from_config(config)


def byte_level_tokenizer(words: int = 330) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on a few sentences."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=words,
        special_tokens=["<pad>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    return fast_tokenizer(tokenizer, eos_token="<eos>", pad_token="<pad>")


def wide_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer whose ids go as far as a real large vocabulary's."""
    letters = ["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    names = letters + [f"word{number}" for number in range(WIDE_TOKENS - len(letters))]
    tokenizer = tokenizers.Tokenizer(models.BPE({name: index for index, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return fast_tokenizer(tokenizer, eos_token="<eos>", pad_token="<pad>")


def sentencepiece_tokenizer(strip: bool = True) -> PreTrainedTokenizerFast:
    """A tokenizer like Llama 2's: U+2581 for spaces, byte tokens for what it has no piece for."""
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    pieces = ["<unk>", "<s>", "</s>", *bytes_, "▁", *"abcdefghijklmnopqrstuvwxyz", "▁the", "▁t", "th", "▁th"]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            {piece: index for index, piece in enumerate(pieces)},
            [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("t", "h")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    parts: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if strip else parts)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return fast_tokenizer(tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def make_model(family: str, folder: Path) -> Path:
    """Save a random model of `family` with its tokenizer to `folder`."""
    tokenizer = wide_tokenizer() if family == "wide" else byte_level_tokenizer()
    vocabulary = WIDE_EMBEDDING if family == "wide" else len(tokenizer) + 6
    random_model(configuration(family, vocabulary)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load_pair(family: str, folder: Path) -> Pair:
    """The decoder and the plain model of a family; `demo` is the embedded model."""
    if family == "demo":
        folder, tokenizer = DEMO / "target", str(DEMO / "tokenizer")
        decoder = Decoder.load(str(folder), tokenizer=tokenizer, dtype="float32")
    else:
        decoder = Decoder.load(str(make_model(family, folder)))
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    plain: Any = AutoModelForCausalLM.from_pretrained(folder, **options)
    return Pair(decoder, plain.eval(), folder)


def some_tokens(decoder: Decoder, count: int, seed: int) -> list[int]:
    """`count` ids spread over the whole vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(2, decoder.vocabulary, (count,), generator=generator).tolist()
    return ids
