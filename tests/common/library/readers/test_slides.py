"""Slides: what old programs can't show, charts of all kinds, diagrams."""

from __future__ import annotations

from io import BytesIO
from re import fullmatch
from zipfile import ZipFile

import pytest

from common.library.readers.office import read_pptx
from tests.common.library.readers import files


def test_what_new_programs_put_on_slides() -> None:
    """A box with a formula, of which old programs are shown a picture, and a diagram."""
    content = read_pptx(files.diagram_pptx("Energy is kept:\vso ", "dE", "dt", ["First step", "Second step"]))
    assert content.sections[0].text == "Energy is kept:\nso dE/dt\nFirst step\nSecond step"


@pytest.mark.parametrize(
    ("stated", "heading", "title"),
    [
        ("Costs of tea", "Costs", "Costs of tea"),
        (None, "Costs", "Costs"),
        ("PowerPoint Presentation", "Costs", "Costs"),
        ("PowerPoint-Präsentation", "Costs\vof tea", "Costs of tea"),
        ("Présentation PowerPoint", None, ""),
        ("Presentación de PowerPoint", "Costs", "Costs"),
        ("PowerPoint tips for teachers", "Welcome", "PowerPoint tips for teachers"),
        (None, None, ""),
    ],
)
def test_titles_of_slides(stated: str | None, heading: str | None, title: str) -> None:
    """Programs that write slides put a title there that nobody chose, and the library that reads them another one."""
    assert read_pptx(files.titled_pptx(heading, stated)).title == title


def test_charts_of_slides() -> None:
    shown: dict[str, list[float | None]] = {"tea": [1234.5, 2], "cups": [3, None]}
    content = read_pptx(files.chart_pptx("Sales", ["spring", "autumn"], shown))
    assert content.sections[0].text == "Sales\ntea, cups\nspring; tea: 1234.5; cups: 3\nautumn; tea: 2"


@pytest.mark.parametrize("kind", [b"bar3DChart", b"pie3DChart", b"stockChart", b"surfaceChart", b"ofPieChart"])
def test_charts_of_all_kinds(kind: bytes) -> None:
    deck = files.chart_pptx("Costs", ["tea", "milk"], {"2025": [3, 4]})
    (name,) = (each for each in ZipFile(BytesIO(deck)).namelist() if fullmatch(r"ppt/charts/chart\d*\.xml", each))
    content = read_pptx(files.altered(deck, name, rb"c:barChart\b", b"c:" + kind))
    assert content.sections[0].text == "Costs\n2025\ntea, 3\nmilk, 4"


def test_charts_of_points() -> None:
    """Series may have points at the same places, or elsewhere."""
    series: dict[str, list[tuple[float, float]]] = {
        "up": [(1.5, 10), (2.5, 20)],
        "down": [(1.5, 9), (2.5, 8)],
        "other": [(7, 1)],
    }
    content = read_pptx(files.points_pptx("Costs", series))
    lines = ["Costs", "up, down", "1.5; up: 10; down: 9", "2.5; up: 20; down: 8", "other", "7, 1"]
    assert content.sections[0].text.split("\n") == lines


def test_charts_of_bubbles() -> None:
    series: dict[str, list[tuple[float, float, float]]] = {"up": [(1.5, 10, 7)], "down": [(1.5, 9, 6)]}
    content = read_pptx(files.bubbles_pptx("Costs", series))
    assert content.sections[0].text.split("\n") == ["Costs", "up, down", "1.5; up: 10; 7; down: 9; 6"]
