"""The modules that compute what is shown, called in the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import pytest

from common.answer.citations import Citation, Quote, citations, parts
from device.http.server import HttpServer
from tests.device.page.browsing import Open

Call = Callable[..., Any]


@pytest.fixture
def call(visits: Open, server: HttpServer) -> Call:
    """Calls a function of a module: `call("text", "bytes", 12)`."""
    page = visits(server.url).page

    def call(module: str, name: str, *arguments: Any) -> Any:
        work = "async ([module, name, given]) => (await import(`/page/modules/${module}.js`))[name](...given)"
        return page.evaluate(work, [module, name, list(arguments)])

    return call


def cited(source: int, *tokens: tuple[int, int]) -> Citation:
    """A citation whose quote has these ranges of the answer's tokens."""
    return Citation(source, (Quote("a passage", tokens),))


class TestAttribution:
    SOURCES = ({"side": "device"}, {"side": "cloud"}, {"side": "cloud"})

    def found(
        self, call: Call, text: str, pieces: Mapping[str, Sequence[float]], quoted: Sequence[Citation] = ()
    ) -> list[dict[str, Any]]:
        report: dict[str, Any] = {"pieces": list(pieces), "attribution": [list(row) for row in pieces.values()]}
        report["citations"] = [asdict(each) for each in quoted]
        found = call("attribution", "partsOf", text, report | {"sources": list(self.SOURCES)})
        return [part | {"text": text[part["start"] : part["end"]]} for part in found]

    def test_parts_and_citations_are_the_reports(self, call: Call) -> None:
        pieces = {
            "Ri": (0.1, 0.9, 0),
            "chie": (0.3, 0.7, 0),
            " drew": (0, 0.1, 0.8),
            " it": (0.1, 0, 0.8),
            ".": (1, 0, 0),
        }
        pieces |= {
            " I": (0.05, 0, 0),
            " am": (0.5, 0.4, 0),
            " six": (0.9, 0, 0),
            " so": (0.1, 0, 0),
            " do": (0.8, 0, 0),
        }
        pieces |= {" 猫": (0.9, 0, 0), "が": (0.1, 0, 0), "鳴く": (0.8, 0, 0), "𠀋": (0, 0.8, 0)}
        text, rows = "".join(pieces), list(pieces.values())
        quoted = citations(rows, list(pieces), [text] * 3) or []
        found = self.found(call, text, pieces, quoted)
        assert [(part["source"], part["text"]) for part in found] == [
            (part.source, part.text) for part in parts(rows, list(pieces))
        ]
        noted = dict.fromkeys(part["source"] for part in found if part["note"] is not None)
        assert list(noted) == [each.source for each in quoted] == [1, 2, 0]

    def test_a_footnote_stands_where_another_document_follows(self, call: Call) -> None:
        pieces = {"a": (0.9, 0, 0), " b": (0, 0, 0), " c": (0.9, 0, 0), " d": (0, 0.9, 0), " e": (0, 0.45, 0.5)}
        found = self.found(call, "a b c d e", pieces, [cited(0, (0, 1), (2, 3)), cited(1, (3, 4))])
        assert [(part["text"], part["side"], part["note"]) for part in found] == [
            ("a", "device", None),
            (" b", "model", None),
            (" c", "device", 5),
            (" d", "cloud", 7),
            (" e", "cloud", None),
        ]

    def test_a_text_that_is_not_the_tokens_has_none(self, call: Call) -> None:
        assert self.found(call, "other", {"a": (1.0, 0.0, 0.0)}) == []

    def test_a_stop_string_cuts(self, call: Call) -> None:
        (part,) = self.found(call, "a", {" a": (1, 0, 0), " b": (0, 1, 0)})
        assert (part["text"], part["side"]) == ("a", "device")

    def test_a_part_of_which_nothing_is_shown_has_no_footnote(self, call: Call) -> None:
        pieces = {"Ann": (0.9, 0, 0), "\n1.": (0, 0.9, 0), " Bob": (0.9, 0, 0)}
        found = self.found(call, "Ann\n1. Bob", pieces, [cited(0, (0, 1), (2, 3)), cited(1, (1, 2))])
        assert [(part["source"], part["note"]) for part in found] == [(0, None), (1, None), (0, 10)]

    @pytest.mark.parametrize("word", ["हिन्दी", "தமிழ்", "বাংলা", "cafe\u0301"])
    def test_a_footnote_parts_no_letter_from_its_signs(self, call: Call, word: str) -> None:
        pieces = {"यह": (0, 0.9, 0), f" {word}": (0.9, 0, 0), "।": (0.9, 0, 0)}
        found = self.found(call, "".join(pieces), pieces, [cited(1, (0, 1)), cited(0, (1, 3))])
        assert [part["note"] for part in found] == [2, 3 + len(word)]


def test_what_came_before_a_failure_is_shown(visits: Open, server: HttpServer) -> None:
    """All of it is in one read."""
    events = [*({"text": str(number)} for number in range(18)), {"error": {"message": "It failed.", "code": "x"}}]
    found = visits(server.url).page.evaluate(
        """async (events) => {
            window.fetch = async () => new Response(events.map((each) => `data: ${JSON.stringify(each)}\n\n`).join(""));
            const { stream } = await import("/page/modules/api.js");
            const texts = [];
            try {
                for await (const chunks of stream("x", {})) texts.push(...chunks.map((chunk) => chunk.text));
            } catch (error) {
                return [texts, error.message];
            }
        }""",
        events,
    )
    assert found == [[str(number) for number in range(18)], "It failed."]


class TestTimeline:
    @staticmethod
    def span(side: str, kind: str, detail: str, position: int, start: int, end: int, epoch: int = 0) -> dict[str, Any]:
        return {
            "side": side,
            "kind": kind,
            "detail": detail,
            "position": position,
            "start": start,
            "end": end,
            "epoch": epoch,
        }

    def test_what_stood_behind_a_rejected_draft_drops_away(self, call: Call) -> None:
        spans = [
            self.span("device", "decode", "rejected", 0, 0, 10),
            self.span("device", "decode", "discarded", 1, 10, 20),
            self.span("cloud", "decode", "kept", 0, 0, 30),
            self.span("cloud", "transmit", "draft", 0, 30, 50),
            self.span("device", "aggregate", "both", 0, 50, 51),
            self.span("device", "roll back", "", 0, 52, 52),
            self.span("device", "transmit", "target", 0, 51, 71),
            self.span("cloud", "decode", "branched", 1, 30, 40),
        ]
        report = {"pieces": ["one"], "accepted": [[False, True]], "degraded": []}
        timeline = call("timeline", "timelineOf", report, {"spans": spans})
        first, second, cloud = timeline["cells"]

        def states(cell: dict[str, Any], *times: int) -> list[str]:
            return [call("timeline", "draftState", cell, time) for time in times]

        assert states(first, -1, 5, 20, 51) == ["absent", "growing", "drafted", "rejected"]
        assert states(second, 5, 15, 51, 52) == ["absent", "growing", "drafted", "gone"]
        assert states(cloud, 20, 40, 50, 51) == ["growing", "leaving", "drafted", "kept"]
        (flying,) = call("timeline", "inFlight", timeline["messages"], 61)
        assert (flying["detail"], flying["between"], flying["share"]) == ("target", ["target", "cloud"], 0.5)
        assert call("timeline", "tallyAt", timeline, report, 50)["decided"] == 0
        assert call("timeline", "tallyAt", timeline, report, 51) == {
            "decided": 1,
            "device": {"right": 0, "judged": 1},
            "cloud": {"right": 1, "judged": 1},
        }
        assert (timeline["from"], timeline["to"]) == (41, 71)
        (twig,) = timeline["twigs"]  # until the token before it is decided
        assert [len(call("timeline", "twigsAt", [twig], time)) for time in (39, 40, 50, 51)] == [0, 1, 1, 0]


class TestLevels:
    REPORT: Final = {
        "method": "speculative",
        "placement": "device",
        "sent_bytes": 640,
        "sent": {"question": 300, "earlier_turns": 90, "tokens": 240, "probabilities": 0, "control": 10},
        "received_bytes": 3000,
        "degraded": [],
        "device": {"drafted": 12},
        "cloud": {"drafted": 10},
    }

    @pytest.mark.parametrize(
        ("changes", "rows"),
        [
            ({}, [("strict", 640, "measured"), ("balanced", 640, "measured"), ("balanced", 4000, "estimated")]),
            ({"placement": "cloud"}, [("strict", 3400, "estimated"), ("balanced", 640, "measured")]),
            ({"placement": "mirrored"}, [("strict", None, "unknown"), ("balanced", 640, "measured")]),
            # A cloud without a slot gets the question.
            (
                {"sent_bytes": 300, "sent": {"tokens": 0, "probabilities": 0}},
                [("strict", None, "unknown"), ("balanced", None, "unknown")],
            ),
            ({"method": "fetch-text", "sent_bytes": 0}, [("strict", None, "unknown"), ("balanced", None, "unknown")]),
            ({"method": "coupled"}, [("strict", 640, "measured"), ("balanced", 640, "measured")]),
            (
                {"degraded": [3]},
                [("strict", 640, "measured"), ("balanced", 640, "measured"), ("balanced", None, "unknown")],
            ),
        ],
    )
    def test_nothing_is_invented(
        self, call: Call, changes: dict[str, Any], rows: list[tuple[str, int | None, str]]
    ) -> None:
        found = call("levels", "bytesByLevel", self.REPORT | changes)
        assert [(row["level"], row["bytes"], row["how"]) for row in found] == [*rows, ("offline", 0, "measured")]
