"""Text to token ids and back, and the hash by which two sides compare their tokenizers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from tokenizers.decoders import DecodeStream

from common.engine.model.errors import ModelError
from common.engine.model.location import locate
from common.engine.model.pretrained_tokenizer import load_pretrained_tokenizer

MOST_IDS = 2**24  # as the wire has them
# The day of templates that print one, that of Llama 3's where nobody says: today's would make the same question another
# prompt tomorrow, and on a side that was started yesterday.
TOLD_DAY: Final = datetime(2024, 7, 26)
_PARTS: Final = {"-d": "26", "-m": "7", "e": "26"} | {part: TOLD_DAY.strftime(f"%{part}") for part in "aAbBdHIjmMpSyY"}
_TOLD: Final = "".join(f"|replace('%{part}', '{told}')" for part, told in _PARTS.items())
# Stands in the line before a template, whose clock it hides, and writes nothing.
_STILL_CLOCK: Final = f"{{% macro strftime_now(format) %}}{{{{ format{_TOLD} }}}}{{% endmacro %}}\n"

# Special tokens with which an answer is over. Files state one or two of them, and chat models end turns by others.
_ENDS = frozenset(
    {"</s>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|eot|>", "<end_of_turn>", "<|END_OF_TURN_TOKEN|>"}
    | {"<|endoftext|>", "<|end_of_text|>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|return|>", "<|call|>"}
)
_PART_ENDS = "<|end|>"  # of one message among several, where "<|return|>" ends the answer

# Padding and truncation are a caller's settings that are stored with a tokenizer, and the post-processor only
# adds special tokens, which `encode` never asks for: none of them changes an id.
_NOT_CONTENT = ("version", "truncation", "padding", "post_processor")


class Tokenizer:
    """A fast Hugging Face tokenizer: plain text in, plain text out. It may be called from several threads."""

    def __init__(self, pretrained: Any) -> None:
        """Wrap an already loaded fast tokenizer; see `load`."""
        backend = getattr(pretrained, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(f"{pretrained.name_or_path}: no fast tokenizer (tokenizer.json); convert it first")
        self._backend = backend
        # A document or a question that spells a special token out is text, it must not end the answer.
        backend.encode_special_tokens = True
        self._pretrained = pretrained
        added = pretrained.added_tokens_decoder.items()
        self.special_ids: dict[str, int] = {token.content: number for number, token in added if token.special}
        self._special_names = {number: name for name, number in self.special_ids.items()}
        self._anchor: list[int] = self.encode("a")[-1:]
        template = pretrained.chat_template
        self.has_chat_template = isinstance(template, str)
        self._template = _STILL_CLOCK + template if self.has_chat_template else None
        description = json.loads(backend.to_str())
        vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=True)
        self.size = max(vocabulary.values(), default=0) + 1
        if self.size > MOST_IDS:
            raise ModelError(
                f"{pretrained.name_or_path}: a token has the id {self.size - 1}; the highest is {MOST_IDS - 1}"
            )
        self.eos: int | None = pretrained.eos_token_id
        bos: int | None = pretrained.bos_token_id
        self.ends = _ends(self.special_ids, self.eos)
        self.begin = bos if bos is not None else self.eos
        self.content_hash = _content_hash(description, bos, self.eos)

    @classmethod
    def load(cls, folder_or_hub_id: str) -> Tokenizer:
        """Load from a local folder or, by its id, from the Hugging Face Hub. Raises `ModelError`."""
        folder = locate(folder_or_hub_id, weights=False)
        try:
            pretrained = load_pretrained_tokenizer(folder)
        except ModelError:
            raise
        except Exception as error:  # the tokenizers library raises bare exceptions for a file it can't parse
            reason = " ".join(str(error).split())
            raise ModelError(f"{folder_or_hub_id}: the tokenizer can't be loaded: {reason}") from error
        return cls(pretrained)

    @property
    def description(self) -> str:
        """The tokenizer as the tokenizers library writes it: `tokenizer.json`."""
        text: str = self._backend.to_str()
        return text

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`. No special token is added, and none that the text spells out is recognised."""
        # A batch of one: unlike a single text, the library encodes it without holding the interpreter.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`: special tokens are left out, bytes that are no UTF-8 become U+FFFD."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=True)
        return text

    def continuation(self, before: Iterable[int], ids: Sequence[int]) -> str:
        """The text that `ids` add to that of the tokens `before`."""
        begun = self.decode([*before])
        text = self.decode([*before, *ids])
        return text[len(begun) :] if text.startswith(begun) else self.decode(ids)

    def piece(self, token: int) -> str:
        """The text of one token as it stands between others; a special token's name."""
        if (name := self._special_names.get(token)) is not None:
            return name
        # By itself, a token of some tokenizers loses the space that it begins with.
        return self.continuation(self._anchor, [token])

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str:
        """The model's chat template on `messages` (role, content, calls), up to where the answer begins, which may call
        `tools`; without a train of thought before it, where the template can leave that out, and on `TOLD_DAY`. The
        template runs in a sandbox. Raises `ValueError`, one sentence, when there is none, or when it refuses them.
        """
        try:
            text: str = self._pretrained.apply_chat_template(
                [dict(message) for message in messages],
                tools=None if tools is None else [dict(tool) for tool in tools],
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
                chat_template=self._template,
            )
        except Exception as error:  # a template may raise what it likes
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"the model's chat template does not take this conversation: {reason}") from error
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text that becomes final with each of `ids`, and with the last one all that is left."""
        stream = self.stream()
        texts = [stream.push(token) for token in ids]
        if texts:
            texts[-1] += stream.finish()
        return texts

    def stream(self) -> StreamDecoder:
        """A decoder for one answer's tokens, one at a time."""
        return StreamDecoder(self._backend)


class StreamDecoder:
    """Incremental detokenisation of one answer.

    The concatenation of what `push` and `finish` return is `Tokenizer.decode` of the same tokens.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._stream = DecodeStream(skip_special_tokens=True)
        self._tokens: list[int] = []
        self._shown = 0  # characters

    def push(self, token: int) -> str:
        """Text that became final with `token`; a character whose bytes are not all there is held back."""
        self._tokens.append(token)
        text: str = self._stream.step(self._backend, token) or ""
        self._shown += len(text)
        return text

    def finish(self) -> str:
        """Text that was held back; U+FFFD if a character never became complete."""
        text: str = self._backend.decode(self._tokens, skip_special_tokens=True)
        return text[self._shown :]


class StopFilter:
    """Cuts a text stream off before the first stop string, however the stream is chunked.

    The stop string that is complete first wins; among those that end together, the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises `ValueError` for an empty stop string, which every text contains."""
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._stops = tuple(stops)
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """Text that may be shown, and whether a stop string was met. After a stop nothing is emitted."""
        if self._stopped:
            return "", True
        buffer = self._held + text
        found = [(start + len(stop), start) for stop in self._stops if (start := buffer.find(stop)) >= 0]
        if found:
            self._stopped, self._held = True, ""
            return buffer[: min(found)[1]], True
        held = max((_overlap(buffer, stop) for stop in self._stops), default=0)
        self._held = buffer[len(buffer) - held :]
        return buffer[: len(buffer) - held], False

    def finish(self) -> str:
        """The held-back text: the stream ended, so it is not the start of a stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


def _ends(special_ids: Mapping[str, int], eos: int | None) -> frozenset[int]:
    names = _ENDS & special_ids.keys()
    if "<|return|>" in names:
        names -= {_PART_ENDS}
    known = frozenset(special_ids[name] for name in names)
    return known if eos is None else known | {eos}


def _content_hash(description: dict[str, Any], bos: int | None, eos: int | None) -> str:
    content = {name: part for name, part in description.items() if name not in _NOT_CONTENT}
    content["special_ids"] = {"bos": bos, "eos": eos}
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
