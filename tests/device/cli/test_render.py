"""Reports as text, exactly."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from typing import Any

import pytest

from common.answer.citations import citations
from common.answer.request import Request
from device.cli.answers import to_stderr
from device.cli.main import _failed
from device.cli.render import (
    OWN_WORDS,
    as_json_text,
    as_one_line,
    footnotes,
    full_report,
    status_table,
    strip_controls,
    summarise_answer,
)
from device.http.payloads import report_json, status_json
from tests.device.table_engine import TableEngine, report

PIECES = ["The", " cat", "", " sat"]
LEFT = "1,454 B left this device: the question, earlier turns, the answer's tokens, control messages"


def example(**changes: Any) -> dict[str, Any]:
    """The JSON report of a four-token answer."""
    value = report_json(report(Request(question="q", prompt="a b c"), len(PIECES)), PIECES) | changes
    text = "".join(value["pieces"])  # which all sources have
    found = citations(value["attribution"], value["pieces"], [text] * 9)
    return value | {"citations": None if found is None else [asdict(each) for each in found]}


def sources(*titles: str) -> list[dict[str, str]]:
    return [{"side": "cloud", "title": title} for title in titles]


class TestSummary:
    def test_footnotes_and_figures(self) -> None:
        assert summarise_answer(example()) == (
            f'From Atlas (cloud): "The cat sat"\n4 tokens, the first after 0.20 s, then 10.0 ms each; {LEFT}'
        )

    def test_without_cloud_or_tokens(self) -> None:
        idle = {"acceptance": None}
        empty = example(
            tokens=0, ttft=None, device=idle, cloud=idle, sources=[], attribution=[], pieces=[],
            notes=["The cloud was\nnot reachable."],
        )  # fmt: skip
        assert summarise_answer(empty) == f"0 tokens; {LEFT}; The cloud was not reachable."
        assert summarise_answer(empty | {"sent_bytes": 0, "notes": []}) == "0 tokens; nothing left this device"

    def test_degraded_tokens(self) -> None:
        assert summarise_answer(example(degraded=[2, 3])).endswith(f"2 without the cloud; {LEFT}")

    @pytest.mark.parametrize(
        ("degraded", "said"),
        [
            ([2, 3], "From token 2 on this device answered alone: The cloud was away."),
            ([0, 1, 2, 3], "This device answered alone: The cloud was away."),
            ([0, 2], "This device answered tokens 0, 2 alone: The cloud was away."),
        ],
    )
    def test_what_this_device_answered_alone_has_a_line(self, degraded: list[int], said: str) -> None:
        lines = summarise_answer(example(degraded=degraded, notes=["Ignored: 'user'.", "The cloud was away."])).split(
            "\n"
        )
        assert lines[0] == said
        assert lines[-1].endswith(f"{len(degraded)} without the cloud; {LEFT}; Ignored: 'user'.")


class TestFootnotes:
    def test_a_document_that_comes_twice_has_one(self) -> None:
        rows = [[0.1, 0.9], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]
        assert footnotes(example(attribution=rows)) == [
            'From Diary (device): "The cat sat"',
            'From Atlas (cloud): "The cat sat"',
        ]

    def test_places_are_named_and_obeyed_by_no_terminal(self) -> None:
        rows = [[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]
        found = footnotes(example(attribution=rows, sources=sources("car.pdf, page 3", "a\x1b[2Jb")))
        assert found == ['From car.pdf, page 3 (cloud): "The cat sat"', 'From a[2Jb (cloud): "The cat sat"']

    def test_long_parts_are_cut_and_small_ones_counted(self) -> None:
        pieces = [*(f" word{n}" for n in range(40)), *(f" part{n}" for n in range(6))]
        rows = [[float(max(0, n - 39) == source) for source in range(7)] for n in range(46)]
        found = footnotes(example(pieces=pieces, attribution=rows, sources=sources(*"ABCDEFG")))
        assert len(found) == 5
        assert found[0].startswith('From A (cloud): "word0 word1 word2 ')
        assert found[0].endswith('…"')
        assert len(found[0]) < 150
        assert found[-1] == "and from 3 other documents"

    def test_what_the_answer_spells_otherwise_is_told(self) -> None:
        quotes = [{"text": "Mr Teodor Vance", "tokens": [], "differs": ["Teodor"]}]
        found = footnotes(example() | {"citations": [{"source": 0, "quotes": quotes}]})
        assert found == ['From Diary (device): "Mr Teodor Vance" (differs from the passage: Teodor)']

    def test_one_row_with_all_documents_names_them(self) -> None:
        assert footnotes(example(attribution=[])) == ["From Diary (device)", "From Atlas (cloud)"]

    def test_an_answer_that_no_document_made_likelier_says_so(self) -> None:
        assert footnotes(example(attribution=[[0.1, 0.2]] * 4)) == [OWN_WORDS]

    def test_what_is_hardly_likelier_is_not_cited(self) -> None:
        rows = [[0.55, 0.0], [0.55, 0.0], [0.55, 0.0], [0.0, 0.9]]
        assert footnotes(example(attribution=rows)) == ['From Atlas (cloud): "The cat sat"']

    def test_an_answer_of_no_document_has_none(self) -> None:
        assert footnotes(example(attribution=[[0.0, 0.0]] * 4, sources=[])) == []


class TestFullReport:
    def test_the_share_of_no_document_is_one_of_the_sources(self) -> None:
        rows = [[0.2, 0.1], [0.6, 0.1], [0.6, 0.1], [0.1, 0.2]]
        assert "sources      50 %  no document\n" in full_report(example(attribution=rows))

    def test_everything(self) -> None:
        text = full_report(example(degraded=[0, 1, 2, 7], notes=["The cloud was away."]))
        assert text == (
            "tokens      4 (prompt 3)\n"
            "time        0.50 s, first token after 0.20 s, then 10.0 ms per token (median 10.0 ms)\n"
            "device      4 drafted, 4 of 4 accepted (100 %), 0 preempted, 0 stale, 0.0 ms per step\n"
            "cloud       4 drafted, 3 of 4 accepted (75 %), 0 preempted, 0 stale, 0.0 ms per step\n"
            "weights     210 int4, 1 int8\n"
            "sent        1,454 B left this device: the question (400 B), earlier turns (1,000 B), "
            "the answer's tokens (48 B), control messages (6 B). "
            "No text of your documents except what answers quote, and no probabilities.\n"
            "network     round trip 12.5 ms, 120 bytes received (42 bytes/token exchanged), 0 bytes of documents\n"
            "decided by  method speculative, aggregation output, sampler race, placement device, seed 7, 0 switches, "
            "0 certificate failures, "
            "0 disagreements\n"
            "degraded    positions 0-2, 7\n"
            "note        The cloud was away.\n"
            "sources      50 %  Diary (device)\n"
            "             50 %  Atlas (cloud)\n"
            'attribution  75 %  Diary (device): "The"\n'
            '             75 %  Atlas (cloud): " cat sat"'
        )

    def test_one_token_without_network(self) -> None:
        one = report_json(report(Request(question="q", prompt="a"), 1), ["Yes"])
        idle = one["cloud"] | {"acceptance": None, "accepted": 0, "rollbacks": 0, "drafted": 0}
        text = full_report(one | {"rtt_ms": None, "cloud": idle, "switches": 1})
        assert "time        0.50 s, first token after 0.20 s\n" in text
        assert "cloud       0 drafted, 0 of 0 accepted, 0 preempted" in text
        assert "network     no round trip measured, 30 bytes received" in text
        assert ", 1 switch, " in text
        assert "degraded    none\n" in text

    def test_line_breaks_of_the_answer_stay_in_their_part(self) -> None:
        text = full_report(example(pieces=["a\nb", "", "", ""], attribution=[[1.0, 0.0]] * 4))
        assert text.endswith('attribution 100 %  Diary (device): "a\\nb"')


class TestUntrustedText:
    def test_titles_cannot_steer_a_terminal(self) -> None:
        evil = "\x1b]0;owned\x07Atlas\r\n\x9b31mred\x7f"
        report_with = example(sources=sources(evil, "B"), pieces=["\x1b[2J", "", "", ""])
        for text in (summarise_answer(report_with), full_report(report_with)):
            assert not [c for c in text.replace("\n", "") if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0]
        assert as_one_line(evil) == "]0;ownedAtlas 31mred"

    def test_text_keeps_its_lines(self) -> None:
        assert strip_controls("é\n\tß \x00\x1b[1m\x85\u202e\u2028") == "é\n\tß [1m"


class TestStatus:
    def test_table(self) -> None:
        status = status_json(TableEngine().status()) | {"version": "9"}
        assert status_table(status) == (
            "version     9\n"
            "model       table-1 (table-1)\n"
            "numbers     bfloat16, bit-exact; 2 threads\n"
            "weights     int4\n"
            "embedder    lengths-1\n"
            "privacy     strict\n"
            "data        /home/table/device\n"
            "tokenizer   tok-hash\n"
            "scorer      race-1\n"
            "library     3 documents, 17 chunks\n"
            "answers     0 active, 0 served\n"
            "kept        0 conversations, 0 MiB\n"
            "cloud       connected (tcp://cloud.example:8601)\n"
            "            model table-1, numbers near\n"
            "            round trip 12.5 ms"
        )

    def test_no_cloud(self) -> None:
        off = {"state": "off", "address": "", "detail": "privacy is offline", "rtt_ms": None, "model": None}
        status = status_json(TableEngine().status()) | {"cloud": off, "documents": 1}
        assert status_table(status).endswith(
            "library     1 document, 17 chunks\nanswers     0 active, 0 served\n"
            "kept        0 conversations, 0 MiB\n"
            "cloud       off\n            privacy is offline"
        )


class TestTerminal:
    """A terminal gets no orders from what a daemon, a cloud or a document says."""

    EVIL = "\x1b]0;owned\x07\x9b31m\u202e"

    def test_json_for_a_terminal_is_ascii(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        text = as_json_text({"title": self.EVIL + "é"})
        assert text.isascii() and text.isprintable()
        assert json.loads(text) == {"title": self.EVIL + "é"}

    @pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1", "ascii"])
    def test_json_in_a_pipe_is_json_in_every_encoding(self, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
        value, pipe = {"title": "café 😀"}, io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(pipe, encoding, "backslashreplace"))
        print(as_json_text(value), flush=True)
        assert json.loads(pipe.getvalue().decode(encoding)) == value

    def test_what_goes_to_stderr(self, capsys: pytest.CaptureFixture[str]) -> None:
        to_stderr(f"dragon: {self.EVIL}")
        _failed(self.EVIL, 2)
        assert not set(capsys.readouterr().err) & set("\x1b\x07\x9b\u202e")
