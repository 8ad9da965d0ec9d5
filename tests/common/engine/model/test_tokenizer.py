"""Text survives the way to ids and back, in whatever pieces it arrives."""

from __future__ import annotations

import json
import random
import shutil
import threading
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

from common.engine.model.tokenizer import StopFilter, Tokenizer
from tests.common.engine.model.tiny_models import DEMO, byte_level_tokenizer, fast_tokenizer, sentencepiece_tokenizer

DEMO_TOKENIZER = Tokenizer.load(str(DEMO / "tokenizer"))
BYTE_LEVEL = byte_level_tokenizer()
SENTENCEPIECE = sentencepiece_tokenizer()
TOKENIZERS = {
    "demo": DEMO_TOKENIZER,
    "byte level": Tokenizer(BYTE_LEVEL),
    "sentencepiece": Tokenizer(SENTENCEPIECE),
    "sentencepiece, space kept": Tokenizer(sentencepiece_tokenizer(strip=False)),
}
LIBRARIES = [("byte level", BYTE_LEVEL), ("sentencepiece", SENTENCEPIECE)]


@pytest.mark.parametrize(
    ("specials", "ends"),
    [
        (["<bos>", "<start_of_turn>", "<end_of_turn>"], {"<eos>", "<end_of_turn>"}),  # Gemma
        (["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], {"<eos>", "<|end_of_text|>", "<|eot_id|>"}),  # Llama 3
        (["<|start|>", "<|end|>", "<|return|>", "<|call|>"], {"<eos>", "<|return|>", "<|call|>"}),  # gpt-oss
        (["<|user|>", "<|end|>"], {"<eos>", "<|end|>"}),  # Phi 3
        ([], {"<eos>"}),
    ],
)
def test_answers_end_where_turns_do(specials: list[str], ends: set[str]) -> None:
    """Also with a token that the model's files do not state, as those of many chat models do not."""
    pretrained = byte_level_tokenizer()
    pretrained.add_special_tokens({"additional_special_tokens": specials})
    made = Tokenizer(pretrained)
    assert {name for name, number in made.special_ids.items() if number in made.ends} == ends


def streamed(tokenizer: Tokenizer, ids: list[int]) -> str:
    stream = tokenizer.stream()
    return "".join([stream.push(token) for token in ids]) + stream.finish()


class TestRoundTrip:
    @pytest.mark.parametrize("name", ["demo", "byte level"])
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(text=st.text(max_size=30))
    @example(text=" 你好🙂 \n\t ")
    def test_byte_level(self, name: str, text: str) -> None:
        tokenizer = TOKENIZERS[name]
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert streamed(tokenizer, ids) == text

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(text=st.text(st.characters(exclude_characters="▁"), max_size=30))
    @example(text="the the  the 你好")
    def test_sentencepiece(self, text: str) -> None:
        # An empty text has no first piece that would carry the leading space.
        tokenizer = TOKENIZERS["sentencepiece"]
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert TOKENIZERS["sentencepiece, space kept"].decode(tokenizer.encode(text)) == (text and " " + text)

    @pytest.mark.parametrize(("name", "library"), [("byte level", BYTE_LEVEL), ("sentencepiece", SENTENCEPIECE)])
    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(words=st.lists(st.sampled_from(["the", " t", "你", "🙂", "é", " ", "h", "\n"]), max_size=12))
    def test_agrees_with_the_library(self, name: str, library: PreTrainedTokenizerFast, words: list[str]) -> None:
        ids = TOKENIZERS[name].encode("".join(words))
        assert TOKENIZERS[name].decode(ids) == library.decode(ids, clean_up_tokenization_spaces=False)

    @pytest.mark.parametrize("name", ["demo", "byte level", "sentencepiece"])
    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(text=st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"]), max_size=20))
    @example(text="the 你好🙂 é \n")
    def test_the_bytes_of_pieces_are_those_of_the_text(self, name: str, text: str) -> None:
        """Also where each piece is but a part of a character."""
        tokenizer = TOKENIZERS[name]
        pieces = [tokenizer.piece_bytes(token) for token in tokenizer.encode(text)]
        assert b"".join(pieces).removeprefix(b" " if name == "sentencepiece" and text else b"") == text.encode()

    def test_special_tokens_in_a_text_are_text(self) -> None:
        text = "ignore this <eos> and that"
        ids = DEMO_TOKENIZER.encode(text)
        assert DEMO_TOKENIZER.eos is not None
        assert DEMO_TOKENIZER.eos not in ids
        assert DEMO_TOKENIZER.decode(ids) == text

    def test_special_tokens_show_nothing(self) -> None:
        ids = DEMO_TOKENIZER.encode(" Harbor")
        assert DEMO_TOKENIZER.decode([1, *ids, 1, 0]) == " Harbor"

    def test_nothing_is_added(self) -> None:
        sentencepiece = TOKENIZERS["sentencepiece"]
        assert sentencepiece.begin == 1
        assert 1 not in sentencepiece.encode("the")
        assert (DEMO_TOKENIZER.begin, DEMO_TOKENIZER.eos) == (1, 1)


class TestStream:
    def test_a_character_is_held_back_until_it_is_complete(self) -> None:
        tokenizer = TOKENIZERS["sentencepiece"]
        pieces = [tokenizer.encode("🙂")[index] for index in range(5)]
        stream = tokenizer.stream()
        assert [stream.push(piece) for piece in pieces] == ["", "", "", "", "🙂"]
        assert stream.finish() == ""

    def test_an_incomplete_character_ends_as_a_replacement(self) -> None:
        tokenizer = TOKENIZERS["sentencepiece"]
        stream = tokenizer.stream()
        shown = [stream.push(piece) for piece in [*tokenizer.encode("a"), *tokenizer.encode("🙂")[1:3]]]
        assert "".join(shown) == "a"
        assert set(stream.finish()) == {"�"}

    def test_misaligned_pieces_lose_nothing(self) -> None:
        # Every piece but the last ends inside a character.
        text = "你好世界"
        ((letters, _),) = pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text)
        pieces = [letters[0:1], letters[1:4], letters[4:7], letters[7:10], letters[10:12]]
        backend = tokenizers.Tokenizer(tokenizers.models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
        backend.decoder = tokenizers.decoders.ByteLevel()
        stream = Tokenizer(fast_tokenizer(backend)).stream()
        assert "".join(stream.push(token) for token in range(5)) + stream.finish() == text

    def test_what_may_follow_may_complete_a_character(self) -> None:
        tokenizer = TOKENIZERS["sentencepiece"]
        word, *character = tokenizer.encode("the🙂")
        assert tokenizer.continuation([word, *character[:2]], character[2:]) == "🙂"
        assert tokenizer.continuation([], tokenizer.encode("the")) == tokenizer.decode(tokenizer.encode("the"))

    def test_no_tokens_are_no_text(self) -> None:
        """Of none, some decoders of the library end in what is no exception of Python's own."""
        backend = tokenizers.Tokenizer(tokenizers.models.BPE({"a</w>": 0}, []))
        backend.decoder = tokenizers.decoders.BPEDecoder()
        tokenizer = Tokenizer(fast_tokenizer(backend))
        assert (tokenizer.decode([]), tokenizer.stream().finish(), tokenizer.continuation([], [])) == ("", "", "")

    def test_ids_that_only_the_model_has_are_silent(self) -> None:
        """Models have more outputs than their tokenizers have tokens."""
        stream = DEMO_TOKENIZER.stream()
        ids = DEMO_TOKENIZER.encode("a b")
        assert stream.push(ids[0]) + stream.push(DEMO_TOKENIZER.size + 7) + stream.push(ids[1]) + stream.finish() == (
            DEMO_TOKENIZER.decode(ids[:2])
        )

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(ids=st.lists(st.integers(0, DEMO_TOKENIZER.size - 1), max_size=40))
    def test_any_ids_give_the_library_s_text(self, ids: list[int]) -> None:
        # Random ids are mostly no UTF-8: both follow Unicode's rule for replacing it.
        library = tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer" / "tokenizer.json"))
        assert streamed(DEMO_TOKENIZER, ids) == library.decode(ids, skip_special_tokens=True)


def byte_ids(text: bytes) -> list[int]:
    return piece_ids(*(f"<0x{value:02X}>" for value in text))


def piece_ids(*pieces: str) -> list[int]:
    vocabulary = SENTENCEPIECE.get_vocab()
    return [vocabulary[piece] for piece in pieces]


PIECES = st.integers(259, TOKENIZERS["sentencepiece"].size - 1).map(lambda token: [token])
SILENT = st.sampled_from([0, 1, 2, TOKENIZERS["sentencepiece"].size + 5]).map(lambda token: [token])
CHARACTERS = st.text("\n é你🙂\ufffd", min_size=1, max_size=3).map(lambda text: byte_ids(text.encode()))
BYTES = st.binary(min_size=1, max_size=3).map(byte_ids)


class TestBytes:
    """Tokens that stand for a byte each; the library replaces all bytes in a row where one of them is wrong."""

    @pytest.mark.parametrize(
        ("ids", "texts"),
        [
            # A newline, and a character that never becomes complete.
            (
                piece_ids("▁the") + byte_ids(b"\n\xf0\x9f") + piece_ids("▁", "h"),
                ["the", "\n", "", "", "\ufffd ", "h"],
            ),
            (
                byte_ids("🙂".encode()) + byte_ids(b"\xf0\x9f\n\xe4"),
                ["", "", "", "🙂", "", "", "\ufffd\n", "\ufffd"],
            ),
            (byte_ids(b"\xe4\xe4\xbd\xa0\x80"), ["", "\ufffd", "", "你", "\ufffd"]),
            (byte_ids(b"\xe4") + piece_ids("▁the"), ["", "\ufffd the"]),
            # A special token shows nothing, and is nothing in between.
            ([*byte_ids(b"\xc3"), 2, *byte_ids(b"\xa9")], ["", "", "é"]),
        ],
    )
    def test_what_was_shown_stays(self, ids: list[int], texts: list[str]) -> None:
        assert TOKENIZERS["sentencepiece"].pieces(ids) == texts

    @pytest.mark.parametrize("name", ["sentencepiece", "sentencepiece, space kept"])
    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(parts=st.lists(PIECES | SILENT | CHARACTERS | BYTES, max_size=12))
    def test_any_ids(self, name: str, parts: list[list[int]]) -> None:
        tokenizer, ids = TOKENIZERS[name], [token for part in parts for token in part]
        assert streamed(tokenizer, ids) == "".join(tokenizer.pieces(ids)) == tokenizer.decode(ids)

    @pytest.mark.parametrize("name", ["sentencepiece", "sentencepiece, space kept"])
    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(parts=st.lists(PIECES | SILENT | CHARACTERS, max_size=12))
    def test_whole_characters_give_the_library_s_text(self, name: str, parts: list[list[int]]) -> None:
        tokenizer, ids = TOKENIZERS[name], [token for part in parts for token in part]
        library = sentencepiece_tokenizer(strip=name == "sentencepiece").backend_tokenizer
        assert streamed(tokenizer, ids) == library.decode(ids, skip_special_tokens=True)

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(text=st.binary(max_size=12))
    def test_only_what_is_no_character_is_replaced(self, text: bytes) -> None:
        """As Unicode has it, where the answer does not begin with a space."""
        ids = piece_ids("▁the") + byte_ids(text)
        assert TOKENIZERS["sentencepiece"].decode(ids) == "the" + text.decode(errors="replace")


class TestFiles:
    @pytest.mark.parametrize("model_type", ["qwen2", "llama", "olmo2", "gpt2"])
    def test_the_file_counts_and_not_the_class_of_the_model_s_type(self, model_type: str, tmp_path: Path) -> None:
        shutil.copytree(DEMO / "tokenizer", tmp_path, dirs_exist_ok=True)
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
        loaded = Tokenizer.load(str(tmp_path))
        text = "Question: Who kept the bakery of Rinlov in 1234?\n\nAnswer: Molgua's."
        assert loaded.encode(text) == DEMO_TOKENIZER.encode(text)
        assert loaded.decode(loaded.encode(text)) == text
        assert (loaded.size, loaded.eos) == (DEMO_TOKENIZER.size, DEMO_TOKENIZER.eos)

    def test_a_vocabulary_and_merges_are_enough(self, tmp_path: Path) -> None:
        """Files like those of OPT on the Hub."""
        BYTE_LEVEL.backend_tokenizer.model.save(str(tmp_path))
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "opt"}))
        described = {"tokenizer_class": "GPT2Tokenizer"} | dict.fromkeys(
            ("bos_token", "eos_token", "unk_token"), "<eos>"
        )
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(described))
        text = "the tower of the river"
        loaded = Tokenizer.load(str(tmp_path))
        assert loaded.encode(text) == Tokenizer(BYTE_LEVEL).encode(text)
        assert loaded.decode(loaded.encode(text)) == text


class TestIdentity:
    def test_same_tokenizer_in_two_folders(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            byte_level_tokenizer().save_pretrained(tmp_path / name)
        one, two = (Tokenizer.load(str(tmp_path / name)) for name in ("one", "two"))
        assert one.content_hash == two.content_hash

    def test_padding_and_truncation_settings_are_not_content_and_change_no_text(self) -> None:
        plain, padded = byte_level_tokenizer(), byte_level_tokenizer()
        padded.backend_tokenizer.enable_padding(length=8)
        padded.backend_tokenizer.enable_truncation(4)
        whole, saved = Tokenizer(plain), Tokenizer(padded)
        assert whole.content_hash == saved.content_hash
        for text in ("a", "words and words"):
            assert saved.encode(text) == whole.encode(text)

    def test_whatever_changes_ids_changes_the_hash(self) -> None:
        base = byte_level_tokenizer()
        other_merges = byte_level_tokenizer(words=300)
        lower = byte_level_tokenizer()
        lower.backend_tokenizer.normalizer = tokenizers.normalizers.Lowercase()
        more = byte_level_tokenizer()
        more.add_tokens(["<tool>"])
        other_end = byte_level_tokenizer()
        other_end.eos_token = "<pad>"
        hashes = {Tokenizer(each).content_hash for each in (base, other_merges, lower, more, other_end)}
        assert len(hashes) == 5

    def test_size_counts_added_tokens(self) -> None:
        more = byte_level_tokenizer()
        before = Tokenizer(byte_level_tokenizer()).size
        more.add_tokens(["<tool>"])
        assert Tokenizer(more).size == before + 1
        assert Tokenizer(more).decode([before]) == "<tool>"


class TestMarkers:
    """Tokens that a tokenizer does not call special, and its chat template writes: an answer shows them."""

    ADDED = ("<think>", "<\uff5cUser\uff5c>", "<tool>", "<b>", "  ", "user")
    TEMPLATE = (
        "{% if tools %}\n  {{ '<tool>' }}{% endif %}{% for message in messages %}"
        "<\uff5c{% if message.role == 'user' %}User{% endif %}\uff5c>{% endfor %}<think>"
    )

    def made(self, template: str | None) -> Tokenizer:
        return Tokenizer(self.pretrained(template))

    def pretrained(self, template: str | None) -> PreTrainedTokenizerFast:
        pretrained = byte_level_tokenizer()
        pretrained.add_tokens([tokenizers.AddedToken(name, normalized=False) for name in self.ADDED])
        pretrained.chat_template = template
        return pretrained

    def test_what_a_text_spells_out_is_none_of_them(self) -> None:
        marked, plain = self.made(self.TEMPLATE), self.made(None)
        markers = {plain.encode(name)[0]: name for name in self.ADDED[:3]}
        assert marked.control_ids == marked.special_ids | {name: number for number, name in markers.items()}
        text = "a <\uff5cUser\uff5c>user <think><b>  <tool>"
        ids = marked.encode(text)
        assert markers.keys() <= set(plain.encode(text)) and markers.keys().isdisjoint(ids)
        assert marked.decode(ids) == text
        others = [plain.encode(name)[0] for name in self.ADDED[3:]]  # they may stand in any text
        assert set(others) <= set(ids)

    def test_a_text_has_the_tokens_that_it_has_where_they_are_special(self) -> None:
        marked, special = self.made(self.TEMPLATE), self.pretrained(None).backend_tokenizer
        special.add_special_tokens(list(self.ADDED[:3]))
        special.encode_special_tokens = True
        parts, source = [*self.ADDED, "<eos>", "a", " tea", "<", "think>", "\n", "é"], random.Random(1)
        for _ in range(500):
            text = "".join(source.choices(parts, k=source.randrange(12)))
            assert marked.encode(text) == special.encode(text, add_special_tokens=False).ids

    def test_there_is_one_model_of_a_tokenizer_that_has_them(self) -> None:
        """A copy of one with many tokens takes a second or more, in which nothing else runs, and its memory again."""
        pretrained, text = self.pretrained(self.TEMPLATE), "<think> the words"
        marked = Tokenizer(pretrained)
        before = marked.encode(text)
        pretrained.backend_tokenizer.model.dropout = 1.0  # whoever has the same model puts no tokens together any more
        assert len(marked.encode(text)) == len(text) > len(before)

    def test_what_an_answer_has_of_them_is_shown(self) -> None:
        marked, plain = self.made(self.TEMPLATE), self.made(None)
        description = marked.description
        marked.encode("<think>")
        for number in set(marked.control_ids.values()) - set(marked.special_ids.values()):
            assert marked.decode([number]) == streamed(marked, [number]) == marked.piece(number) in self.ADDED
        assert description == marked.description == plain.description  # as formats of answers read it
        assert marked.content_hash == plain.content_hash


def cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """The part of `text` that is shown: everything before the stop string that is complete first."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


class TestStopFilter:
    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(
        chunks=st.lists(st.text("ab\n", max_size=5), max_size=8),
        stops=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
    )
    @example(chunks=["a", "ab"], stops=["aab"])
    @example(chunks=["aab"], stops=["aab", "a"])
    def test_chunks_do_not_matter(self, chunks: list[str], stops: list[str]) -> None:
        stop_filter = StopFilter(stops)
        shown = ""
        stopped = False
        for chunk in chunks:
            text, stopped = stop_filter.push(chunk)
            shown += text
        shown += stop_filter.finish()
        assert (shown, stopped) == cut("".join(chunks), stops)

    def test_shows_what_can_not_be_a_stop(self) -> None:
        stop_filter = StopFilter(["\nQuestion:"])
        assert stop_filter.push("Paris.\nQ") == ("Paris.", False)
        assert stop_filter.push("uick") == ("\nQuick", False)
        assert stop_filter.push("\nQuestion: more") == ("", True)
        assert stop_filter.push("more") == ("", True)
        assert stop_filter.finish() == ""

    def test_empty_stop(self) -> None:
        with pytest.raises(ValueError, match="empty"):
            StopFilter(["x", ""])


def test_other_threads_go_on_while_it_encodes() -> None:
    text, done, turns = "7a b" * 2**18, threading.Event(), 0

    def encode() -> None:
        DEMO_TOKENIZER.encode(text)
        done.set()

    thread = threading.Thread(target=encode)
    thread.start()
    while not done.wait(0.001):
        turns += 1
    thread.join()
    assert turns > 20, "some hundreds in the second that it takes; with the interpreter held, none"
