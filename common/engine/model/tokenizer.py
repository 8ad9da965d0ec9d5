"""Text to token ids and back, and a hash to compare tokenizers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from common.engine.model.errors import ModelError
from common.engine.model.files import check_vocabulary, named_values
from common.engine.model.hub import find_decoder_files

# --- pretrained_tokenizer
# Tokenizer files as a fast Hugging Face tokenizer.


def load_pretrained_tokenizer(folder: Path) -> Any:
    """Loads `tokenizer.json` exactly as written, without network, after `check_files`.

    `AutoTokenizer` picks a class by the model's type, and some classes replace parts of the file: ids then differ from
    training. So it serves only folders without this file, from `vocab.json`, `merges.txt` or the like. Raises
    `ModelError` without a vocabulary, and the classes' own errors, bare exceptions included.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    check_vocabulary(folder)
    try:
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    except ValueError:
        return AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False, local_files_only=True)


# --- tokenizer

MOST_IDS = 2**24  # limit of the wire format
# The fixed date for templates that print one, Llama 3's default. Today's date would change the prompt every day, and
# between sides.
TOLD_DAY: Final = datetime(2024, 7, 26)
_PARTS: Final = {"-d": "26", "-m": "7", "e": "26"} | {part: TOLD_DAY.strftime(f"%{part}") for part in "aAbBdHIjmMpSyY"}
_TOLD: Final = "".join(f"|replace('%{part}', '{told}')" for part, told in _PARTS.items())
# A line before a template that hides its clock and prints nothing.
_STILL_CLOCK: Final = f"{{% macro strftime_now(format) %}}{{{{ format{_TOLD} }}}}{{% endmacro %}}\n"

_DEFAULT, _FOR_TOOLS = "default", "tool_use"  # names of chat templates, if there are several

# Special tokens that end an answer. Files state one or two, and chat models end turns with others.
_ENDS = frozenset(
    {"</s>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|eot|>", "<end_of_turn>", "<|END_OF_TURN_TOKEN|>"}
    | {"<|endoftext|>", "<|end_of_text|>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|return|>", "<|call|>"}
)
_PART_ENDS = "<|end|>"  # ends one message of several, if "<|return|>" ends the answer

# The form of token names. Runs of spaces and words, added by some tokenizers, occur in any text.
_NAME: Final = re.compile(r"\w[^\w\s]|[^\w\s]\w")
_ROLES: Final = ("system", "user", "assistant", "user")  # roles of turns in a template's trial

# Padding and truncation are a caller's settings. The post-processor only adds special tokens. None of them changes an
# id.
_NOT_CONTENT = ("version", "truncation", "padding", "post_processor")

REPLACEMENT: Final = "\ufffd"  # for bytes that are no character
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")  # a token for one byte, if the decoder has this kind:
_BYTE_DECODER: Final = "ByteFallback"
_BYTE_LEVEL: Final = "ByteLevel"  # the decoder of tokens named with one sign per byte
_MISSING: Final = "unexpected end of data"  # the error for bytes that may begin a character


class Tokenizer:
    """A fast Hugging Face tokenizer for plain text. Thread-safe."""

    def __init__(self, pretrained: Any) -> None:
        backend = getattr(pretrained, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(f"{pretrained.name_or_path}: no fast tokenizer (tokenizer.json); convert it first")
        self._backend = backend
        # Removes stored settings: a text is encoded in full, and nothing else.
        backend.no_truncation()
        backend.no_padding()
        # A special token spelled out in a document or question is text.
        backend.encode_special_tokens = True
        self._pretrained = pretrained
        special = {number: token for number, token in pretrained.added_tokens_decoder.items() if token.special}
        self.special_ids: dict[str, int] = {token.content: number for number, token in special.items()}
        self._special_names = {number: name for name, number in self.special_ids.items()}
        self._templates = _templates(pretrained.chat_template)
        # Not special, so visible in an answer, but a template's own words, such as `<think>`.
        markers = self._named({n: token for n, token in pretrained.added_tokens_decoder.items() if n not in special})
        self._encoder = _without(markers, backend) if markers else backend
        controls = special | markers
        # Tokens whose names count in a template's words only.
        self.control_ids: dict[str, int] = {token.content: number for number, token in controls.items()}
        # Tokens that strip the space before them, or after them.
        self.strip_before = frozenset(number for number, token in controls.items() if token.lstrip)
        self.strip_behind = frozenset(number for number, token in controls.items() if token.rstrip)
        self._anchor: list[int] = self.encode("a")[-1:]
        description = json.loads(backend.to_str())
        vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=True)
        self.size = max(vocabulary.values(), default=0) + 1
        if self.size > MOST_IDS:
            raise ModelError(
                f"{pretrained.name_or_path}: a token has the id {self.size - 1}; the highest is {MOST_IDS - 1}"
            )
        self._bytes_of = _bytes_of(vocabulary, description.get("decoder"))
        self._in_bytes = ("type", _BYTE_LEVEL) in named_values(description.get("decoder"))
        self.eos: int | None = pretrained.eos_token_id
        bos: int | None = pretrained.bos_token_id
        self.ends = _ends(self.special_ids, self.eos)
        self.begin = bos if bos is not None else self.eos
        self.content_hash = _content_hash(description, bos, self.eos)

    @classmethod
    def load(cls, folder_or_hub_id: str) -> Tokenizer:
        """Loads from a local folder or the Hugging Face Hub. Raises `ModelError`."""
        folder = find_decoder_files(folder_or_hub_id, weights=False)
        try:
            pretrained = load_pretrained_tokenizer(folder)
        except ModelError:
            raise
        except Exception as error:  # the library raises bare exceptions for a file it can't parse
            reason = " ".join(str(error).split())
            raise ModelError(f"{folder_or_hub_id}: the tokenizer can't be loaded: {reason}") from error
        return cls(pretrained)

    @property
    def description(self) -> str:
        """`tokenizer.json`, as the library writes it."""
        text: str = self._backend.to_str()
        return text

    @property
    def has_chat_template(self) -> bool:
        return bool(self._templates)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`. Names of control tokens stay text."""
        # For a batch of one, unlike a single text, the library releases the interpreter.
        (encoding,) = self._encoder.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens. Invalid UTF-8 becomes U+FFFD."""
        text = _decoded(self._backend, ids)
        # If one of several consecutive bytes is wrong, the library replaces all.
        if REPLACEMENT in text and not self._bytes_of.keys().isdisjoint(ids):
            return "".join(self.pieces(ids))
        return text

    def continuation(self, before: Iterable[int], ids: Sequence[int]) -> str:
        stream = self.stream()
        for token in before:
            stream.push(token)
        return "".join([stream.push(token) for token in ids]) + stream.finish()

    def piece(self, token: int) -> str:
        """The text of one token between others; a special token's name."""
        if (name := self._special_names.get(token)) is not None:
            return name
        # A token by itself loses its leading space in some tokenizers.
        return self.continuation(self._anchor, [token])

    def piece_bytes(self, token: int) -> bytes:
        """The bytes of `piece`, or of a part of a character."""
        text = self.piece(token)
        if REPLACEMENT not in text:
            return text.encode()
        if token in self._bytes_of:
            return bytes([self._bytes_of[token]])
        name = self._backend.id_to_token(token)
        if self._in_bytes and name is not None and _BYTE_OF_SIGN.keys() >= set(name):
            return bytes(map(_BYTE_OF_SIGN.__getitem__, name))
        return text.encode()

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str:
        """Renders the chat template on `messages` up to the answer's beginning.

        The answer may call `tools`. Suppresses a train of thought if possible, and uses the date `TOLD_DAY`. Runs in a
        sandbox. Raises `ValueError`, one sentence, without a template or if it refuses the messages.
        """
        template = self._template(with_tools=tools is not None)
        try:
            text: str = self._pretrained.apply_chat_template(
                [dict(message) for message in messages],
                tools=None if tools is None else [dict(tool) for tool in tools],
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
                chat_template=_STILL_CLOCK + template,
            )
        except Exception as error:  # a template may raise anything
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"the model's chat template does not take this conversation: {reason}") from error
        return text

    def _template(self, with_tools: bool) -> str:
        names = (_FOR_TOOLS, _DEFAULT) if with_tools else (_DEFAULT, _FOR_TOOLS)
        for name in names:
            if name in self._templates:
                return self._templates[name]
        found = ", ".join(sorted(self._templates))
        raise ValueError(
            f"the tokenizer has chat templates for other purposes ({found}) and none that is called {_DEFAULT}"
            if found
            else "the tokenizer has no chat template"
        )

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text final with each of `ids`, complete at the last."""
        stream = self.stream()
        texts = [stream.push(token) for token in ids]
        if texts:
            texts[-1] += stream.finish()
        return texts

    def stream(self) -> StreamDecoder:
        return StreamDecoder(self._backend, self._bytes_of, self._anchor, self._is_silent)

    def _named(self, added: Mapping[int, Any]) -> dict[int, Any]:
        """Selects `added` tokens in chat templates or their output."""
        found = {number: token for number, token in added.items() if _NAME.search(token.content)}
        said = list(self._templates.values()) if found else []
        for roles in (_ROLES, _ROLES[1:]) if said else ():
            with suppress(ValueError):
                said.append(self.render_chat([{"role": role, "content": "a"} for role in roles]))
        return {number: token for number, token in found.items() if any(token.content in text for text in said)}

    def _is_silent(self, token: int) -> bool:
        """Special tokens, and ids without text in the tokenizer."""
        return token in self._special_names or self._backend.id_to_token(token) is None


class StreamDecoder:
    """Incremental detokenisation of one answer.

    Shown text never changes. `push` and `finish` together return `Tokenizer.decode` of the same tokens.
    """

    def __init__(
        self, backend: Any, bytes_of: Mapping[int, int], anchor: Sequence[int], is_silent: Callable[[int], bool]
    ) -> None:
        """`bytes_of`: bytes of byte tokens. After `anchor` a token keeps its leading space.

        A silent token shows nothing and does not split the bytes of a character.
        """
        self._backend, self._is_silent = backend, is_silent
        self._bytes_of, self._anchor = bytes_of, anchor
        self._before: list[int] = []  # the last shown tokens; a token's text depends on earlier ones
        self._begun = ""  # their text
        self._held: list[int] = []  # after them; not shown yet
        self._character: list[int] = []  # byte tokens of an incomplete character

    def push(self, token: int) -> str:
        """Text final with `token`. An incomplete character is held back."""
        if self._is_silent(token):
            return ""
        if token not in self._bytes_of:
            return self._replaced(self._character) + self._shown([token])
        self._character.append(token)
        return self._completed()

    def finish(self) -> str:
        """The held-back text; U+FFFD for an incomplete character."""
        return self._text([*self._before, *self._held])[len(self._begun) :] + self._replaced(self._character)

    def _completed(self) -> str:
        """Keeps the possible beginning of a character.

        If one of several consecutive bytes is wrong, the library replaces all, also shown ones. So it gets whole
        characters only.
        """
        text = ""
        while self._character:
            tokens = self._character
            try:
                bytes(map(self._bytes_of.__getitem__, tokens)).decode()
            except UnicodeDecodeError as error:
                if error.reason == _MISSING:
                    break
                text += self._replaced(tokens[: error.end])
                self._character = tokens[error.end :]
            else:
                text += self._shown(tokens)
                self._character = []
        return text

    def _replaced(self, tokens: Sequence[int]) -> str:
        self._character = []
        if not tokens:
            return ""
        if not self._before:  # the library strips a space from the answer's first token
            self._before, self._held = [*self._anchor], []
            self._begun = self._text(self._before)
        return REPLACEMENT

    def _shown(self, tokens: Sequence[int]) -> str:
        """The new text, once no later token can change it."""
        self._held += tokens
        text, begun = self._text([*self._before, *self._held]), self._begun
        # Without byte tokens, a token may end inside of a character.
        if len(text) <= len(begun) or (text.endswith(REPLACEMENT) and not self._bytes_of):
            return ""
        self._before, self._held = self._held, []
        self._begun = self._text(self._before)
        return text[len(begun) :] if text.startswith(begun) else self._begun

    def _text(self, tokens: Sequence[int]) -> str:
        return _decoded(self._backend, tokens)


class StopFilter:
    """Cuts a text stream off before the first stop string, however it is chunked.

    The stop string that is complete first wins; among equals, the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises `ValueError` for an empty stop string."""
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._stops = tuple(stops)
        self._held = ""
        self._stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """Returns text to show, and whether a stop string was met."""
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
        """The held-back text. It is no stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


def _without(markers: Collection[int], backend: Any) -> Any:
    """Copies `backend` without recognition of the added tokens `markers`.

    Both share the model. A deep copy takes seconds, blocks all threads, and doubles the memory.
    """
    made = type(backend)(backend.model)
    for part in ("normalizer", "pre_tokenizer"):
        if (shared := getattr(backend, part)) is not None:
            setattr(made, part, shared)
    added = sorted(backend.get_added_tokens_decoder().items())  # this order gives them the same ids
    for number, token in added:
        token.special = token.special or number in markers
    made.add_tokens([token for _, token in added])
    made.encode_special_tokens = True
    return made


def _decoded(backend: Any, tokens: Sequence[int]) -> str:
    """Without tokens, some of the library's decoders crash."""
    text: str = backend.decode(list(tokens), skip_special_tokens=True) if tokens else ""
    return text


def _templates(found: Any) -> dict[str, str]:
    named = found if isinstance(found, Mapping) else {_DEFAULT: found}
    return {str(name): template for name, template in named.items() if isinstance(template, str)}


def _byte_of_sign() -> dict[str, int]:
    """GPT-2's signs: printable bytes for themselves, others from U+0100 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}


_BYTE_OF_SIGN: Final = _byte_of_sign()


def _bytes_of(vocabulary: Mapping[str, int], decoder: Any) -> dict[int, int]:
    if ("type", _BYTE_DECODER) not in named_values(decoder):
        return {}
    named = ((_BYTE.fullmatch(name), number) for name, number in vocabulary.items())
    return {number: int(name[1], 16) for name, number in named if name}


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
