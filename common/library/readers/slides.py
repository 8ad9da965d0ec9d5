"""Reader of PowerPoint files with slides as places."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, Final

from common.library.readers.archive import (
    COMPATIBILITY,
    description,
    objects,
    open_archive,
    parsed_part,
    title_of_slides,
)
from common.library.readers.charts import DIAGRAM, DRAWING, OF_OUTLINE, of_chart, of_diagram
from common.library.readers.content import Content, Section, unread
from common.library.readers.formulas import office_in_line
from common.library.readers.tables import OF_TEXTS, filled_down, table_text
from common.library.readers.within import read_within

_FORMULA: Final = "{http://schemas.microsoft.com/office/drawing/2010/main}m"


def read_pptx(content: bytes) -> Content:
    """Slide by slide: texts, tables, charts, diagrams and the speaker's notes."""
    from pptx import Presentation

    with open_archive(content) as archive:
        deck = Presentation(io.BytesIO(content))
        title = title_of_slides(archive, description(archive), next(map(_heading, deck.slides), ""))
        within = read_within(objects(archive), "object")
    sections = []
    for number, slide in enumerate(deck.slides, 1):
        _show_new(slide.shapes.element)
        lines = list(_texts(slide.shapes))
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            lines.append(slide.notes_slide.notes_text_frame.text)
        lines += _comments(slide)
        text = "\n".join(line for line in lines if line.strip()).replace("\v", "\n")
        if text:
            sections.append(Section(text, f"slide {number}"))
    films = sum(
        each.reltype.endswith(("/video", "/audio")) for slide in deck.slides for each in slide.part.rels.values()
    )
    return Content((*sections, *within.sections), title, (*within.remarks, *unread(films, "recording")))


def _comments(slide: Any) -> Iterator[str]:
    for each in slide.part.rels.values():
        if each.reltype.endswith("/comments") and not each.is_external:
            for comment in parsed_part(each.target_part.blob).iter("{*}cm"):
                text = "".join(part.text or "" for part in comment.iter("{*}text", DRAWING + "t"))
                if text.strip():
                    yield f"Comment: {text}"


def _heading(slide: Any) -> str:
    shape = slide.shapes.title
    return " ".join(shape.text_frame.text.split()) if shape is not None and shape.has_text_frame else ""


def _show_new(shapes: Any) -> None:
    for alternatives in list(shapes.iter(COMPATIBILITY + "AlternateContent")):
        first = alternatives.find(COMPATIBILITY + "Choice")
        for shape in () if first is None else list(first):
            alternatives.addprevious(shape)
        alternatives.getparent().remove(alternatives)
    for formula in list(shapes.iter(_FORMULA)):
        run = formula.makeelement(DRAWING + "r")
        text = formula.makeelement(DRAWING + "t")
        text.text = office_in_line(formula)
        run.append(text)
        formula.getparent().replace(formula, run)


def _of_diagram(frame: Any) -> Iterator[str]:
    for parts in frame.element.iter(DIAGRAM + "relIds"):
        name = parts.get(OF_OUTLINE)
        yield from of_diagram(parsed_part(frame.part.related_part(name).blob) if name in frame.part.rels else ())


def _texts(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if shape.has_text_frame:
            yield shape.text_frame.text
        elif getattr(shape, "has_table", False):
            rows = [list(row.cells) for row in shape.table.rows]
            spans = {
                (number, column): cell.span_height
                for number, row in enumerate(rows)
                for column, cell in enumerate(row)
                if cell.is_merge_origin
            }
            yield table_text(filled_down(([cell.text for cell in row] for row in rows), spans), OF_TEXTS)
        elif getattr(shape, "has_chart", False):
            yield from of_chart(shape.chart.element)
        elif getattr(shape.element, "graphicData_uri", "") == DIAGRAM.strip("{}"):
            yield from _of_diagram(shape)
        elif hasattr(shape, "shapes"):
            yield from _texts(shape.shapes)
