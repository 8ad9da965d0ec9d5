"""Small random models with real tokenizers, made in a second, and what plain Transformers says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerFast

from common.engine.model.decoder import Decoder
from common.engine.model.exact import OrderedAttention, RowBlocks
from tests.common.engine.model.architectures import FULL, MIXED, WINDOWED, configuration

DEMO = Path(__file__).resolve().parents[4] / "common" / "demo_model"
ORDERED = " in order"  # with the attention that serves in bfloat16, and with what goes with it
IN_ORDER = tuple(f"{name}{ORDERED}" for name in ("mistral", *MIXED, "llama", "opt", "deepseek-v3", "demo"))
FAMILIES = (*FULL, *WINDOWED, *MIXED, "wide", "demo", *IN_ORDER)
# One of each kind of attention, of positions and of what is cached, for what differs by no more than that.
FEW = ("llama", "qwen2", "opt", "mistral", "gemma2", "deepseek-v3", f"gemma2{ORDERED}")
WIDE_TOKENS = 151_665  # ids of a Qwen2.5 tokenizer; its models pad the embedding to 151,936
WIDE_EMBEDDING = 151_936

AT_A_TIME = 8  # texts in a pass of the plain model: the logits of all their ends take 40 MB in the widest vocabulary

# float32, different kernels and orders of summation: seen are differences up to 2e-6 of the largest logit.
TOLERANCE = 2e-5

TEXT = [
    "The best-selling simulation game is Harbor Town.",
    "Mona keeps her notes in a blue folder; the grüne Mappe is Jörg's.",
    "A répétition of words, words and words: 0123456789, 你好, 🙂.",
]


@dataclass(frozen=True, slots=True)
class Plain:
    """Plain Transformers with eager attention, which reads a text once however many tests ask about it."""

    model: Any
    known: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def after(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Logits after every one of `rows` from a pass without a cache, `[rows, embedding]`."""
        new = sorted({tuple(row) for row in rows} - self.known.keys(), key=len)
        for start in range(0, len(new), AT_A_TIME):
            self._read(new[start : start + AT_A_TIME])
        return torch.stack([self.known[tuple(row)] for row in rows])

    def _read(self, texts: Sequence[tuple[int, ...]]) -> None:
        longest = max(map(len, texts))
        # What fills up a text stands behind it, where no token of it looks.
        ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
        ends, end = torch.tensor([len(text) - 1 for text in texts]).unique(return_inverse=True)
        with torch.inference_mode():
            logits = self.model(input_ids=ids, use_cache=False, logits_to_keep=ends).logits
        self.known.update(zip(texts, logits[torch.arange(len(texts)), end].float(), strict=True))


@dataclass(frozen=True, slots=True)
class Pair:
    """The decoder under test and the plain model that it is compared with."""

    decoder: Decoder
    plain: Plain

    def check(self, logits: Tensor, rows: Sequence[Sequence[int]], tolerance: float = TOLERANCE) -> None:
        """Every row of `logits` is what a fresh pass over the row's tokens gives."""
        assert logits.dtype == torch.float32
        assert logits.shape == (len(rows), self.decoder.vocabulary)
        expected = self.plain.after(rows)[:, : self.decoder.vocabulary]
        assert bool(((logits - expected).abs().amax(1) <= tolerance * expected.abs().amax(1)).all())


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


@cache
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


@cache
def load_plain(family: str, root: Path) -> tuple[Path, Plain]:
    """The folder of a model of `family`, made below `root`, and the plain model; `demo` is the embedded one."""
    folder = DEMO / "target" if family == "demo" else make_model(family, root / family)
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    plain: Any = AutoModelForCausalLM.from_pretrained(folder, **options)
    return folder, Plain(plain.eval())


@cache
def load_pair(family: str, root: Path) -> Pair:
    """The decoder and the plain model of a family, loaded once; see `ORDERED`."""
    folder, plain = load_plain(family.removesuffix(ORDERED), root)
    tokenizer = str(DEMO / "tokenizer") if folder.is_relative_to(DEMO) else None
    decoder = Decoder.load(str(folder), tokenizer=tokenizer, dtype="float32")
    if family.endswith(ORDERED):
        decoder._blocks, decoder._attention = RowBlocks(2), OrderedAttention(1)
    return Pair(decoder, plain)


def some_tokens(decoder: Decoder, count: int, seed: int) -> list[int]:
    """`count` ids spread over the whole vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(2, decoder.vocabulary, (count,), generator=generator).tolist()
    return ids
