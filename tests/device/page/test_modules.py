"""The modules that compute what is shown, called in the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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


class TestAttribution:
    SOURCES = ({"side": "device"}, {"side": "cloud"}, {"side": "cloud"})

    def parts(self, call: Call, text: str, **pieces: tuple[float, float, float]) -> list[tuple[str, str, Any, bool]]:
        report = {"pieces": list(pieces), "attribution": [list(row) for row in pieces.values()]}
        found = call("attribution", "partsOf", text, report | {"sources": list(self.SOURCES)})
        return [(text[part["start"] : part["end"]], part["side"], part["source"], part["cited"]) for part in found]

    def test_words_are_whole_and_cited_where_their_source_ends(self, call: Call) -> None:
        pieces = {"Ri": (0.1, 0.9, 0), "chie": (0.3, 0.7, 0), " drew": (0, 0.2, 0.7), " it": (0, 0, 1), ".": (1, 0, 0)}
        assert self.parts(call, "Richie drew it.", **pieces) == [
            ("Richie", "cloud", 1, True),
            (" drew", "cloud", 2, True),
            (" it.", "both", None, False),
        ]

    def test_what_no_document_made_likelier_is_the_models(self, call: Call) -> None:
        pieces = {"I": (0.05, 0, 0), " am": (0.5, 0.5, 0), " six": (0.9, 0, 0), " so": (0.1, 0, 0), " .": (0.8, 0, 0)}
        assert self.parts(call, "I am six so .", **pieces) == [
            ("I", "model", None, False),
            (" am", "both", None, False),
            (" six", "device", 0, False),
            (" so", "model", None, False),
            (" .", "device", 0, True),
        ]

    def test_a_text_that_is_not_the_tokens_has_none(self, call: Call) -> None:
        assert self.parts(call, "other", a=(1.0, 0.0, 0.0)) == []

    def test_a_stop_string_cuts(self, call: Call) -> None:
        assert self.parts(call, "a", **{" a": (1, 0, 0), " b": (0, 1, 0)}) == [("a", "device", 0, True)]


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
