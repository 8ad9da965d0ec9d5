"""Embedded documents of OpenDocument files, and the margins of their pages."""

from __future__ import annotations

import pytest

from common.library.readers.formats import parser_of
from common.library.readers.numbering import CountedList, Level
from tests.common.library.readers import files

NAMES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{what}:1.0"'
    for name, what in {"office": "office", "text": "text", "table": "table", "chart": "chart", "style": "style"}.items()
)
FORMULA = """<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mi>E</mi>
<annotation encoding="StarMath 5.0">E = m c^2</annotation></semantics></math>"""
CHART = f"""<office:document-content {NAMES}><office:body><office:chart><chart:chart>
<chart:title><text:p>Sales</text:p></chart:title><table:table><table:table-header-rows><table:table-row>
<table:table-cell/><table:table-cell><text:p>tea</text:p></table:table-cell>
<table:table-cell><text:p>cups</text:p></table:table-cell></table:table-row></table:table-header-rows><table:table-row>
<table:table-cell><text:p>May</text:p></table:table-cell><table:table-cell><text:p>12</text:p></table:table-cell>
<table:table-cell><text:p>3</text:p></table:table-cell></table:table-row></table:table>
</chart:chart></office:chart></office:body></office:document-content>"""
STYLES = f"""<office:document-styles {NAMES}><office:master-styles><style:master-page>
<style:header><text:p>Ada Ltd</text:p></style:header>
<style:footer><text:p>3</text:p><text:p>May 2026</text:p></style:footer>
</style:master-page><style:master-page><style:header><text:p>Ada Ltd</text:p></style:header></style:master-page>
</office:master-styles></office:document-styles>"""
PARTS = {"Object 1/content.xml": FORMULA, "Object 2/content.xml": CHART, "styles.xml": STYLES}


def frame(name: str) -> str:
    link = f'<draw:object xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="{name}"/>'
    return f"<draw:frame>{link}<draw:image/></draw:frame>"


def test_embedded_documents_and_margins_of_a_text() -> None:
    body = f"<text:p>So {frame('./Object 1')} holds.</text:p><text:p>See {frame('./Object 2')}</text:p>"
    text = parser_of(".odt")(files.opendocument("text", body, parts=PARTS)).sections[0].text
    chart = "Sales\n\ntea, cups\nMay; tea: 12; cups: 3"
    assert text == f"Ada Ltd\n\nSo E = m c^2 holds.\n\nSee\n\n{chart}\n\nMay 2026"


def test_embedded_documents_of_slides() -> None:
    body = f"<draw:page>{frame('./Object 2')}{frame('Object 1')}</draw:page>"
    content = parser_of(".odp")(files.opendocument("presentation", body, parts=PARTS))
    assert content.sections[0].text == "Sales\ntea, cups\nMay; tea: 12; cups: 3\nE = m c^2"


def test_titles_of_slides() -> None:
    def titled(title: str, kind: str) -> str:
        name = f'xmlns:p="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0" p:class="{kind}"'
        box = "<draw:text-box><text:p>Costs</text:p><text:p>of tea</text:p></draw:text-box>"
        body = f"<draw:page><draw:frame {name}>{box}</draw:frame></draw:page>"
        return parser_of(".odp")(files.opendocument("presentation", body, title)).title

    assert (titled("", "title"), titled("PowerPoint-Präsentation", "title")) == ("Costs of tea", "Costs of tea")
    assert (titled("Tea", "title"), titled("", "outline")) == ("Tea", "")


def test_references_to_nothing_and_to_one_thing_again() -> None:
    names = ("./Object 9", "../../etc/passwd", "http://127.0.0.1:9/", "", "./Object 1", "./Object 1")
    both = frame("./Object 1").replace("<draw:image/>", frame("./Object 2"))
    body = f"<text:p>So {''.join(map(frame, names))} it is.</text:p><text:p>{both}</text:p>"
    text = parser_of(".odt")(files.opendocument("text", body, parts=PARTS)).sections[0].text
    assert text.split("\n\n")[1] == "So E = m c^2 it is."


def test_a_comment_in_an_embedded_text_is_no_formula() -> None:
    held = CHART.replace("<chart:chart>", "<office:annotation><text:p>check!</text:p></office:annotation><chart:chart>")
    parts = {"Object 2/content.xml": held}
    text = parser_of(".odt")(files.opendocument("text", f"<text:p>{frame('Object 2')}</text:p>", parts=parts))
    assert text.sections[0].text.startswith("Sales")


def test_words_of_shapes_and_readings_do_not_run_into_others() -> None:
    described = '<svg:desc xmlns:svg="urn:svg">A sign</svg:desc>'
    shapes = (
        "<text:p>One <draw:line/>a</text:p><text:list><text:list-item><text:p>b</text:p></text:list-item></text:list>"
    )
    group = f"<draw:g><draw:rect>{described}<text:p>Two</text:p></draw:rect></draw:g>"
    ruby = "<text:ruby><text:ruby-base>漢字</text:ruby-base><text:ruby-text>かんじ</text:ruby-text></text:ruby>です"
    body = f"<text:p>Before <draw:custom-shape>{shapes}</draw:custom-shape>after{group}, {ruby}</text:p>"
    blocks = ["Before after, 漢字です", "One a", "- b", "Two"]
    assert parser_of(".odt")(files.opendocument("text", body)).sections[0].text.split("\n\n") == blocks


def level(depth: int, form: str, suffix: str = ".", shown: int = 1) -> str:
    return (
        f'<text:list-level-style-number text:level="{depth}" style:num-format="{form}" style:num-suffix="{suffix}"'
        f' text:display-levels="{shown}"/>'
    )


def clauses(*items: str, more: str = "") -> str:
    listed = "".join(f"<text:list-item>{item}</text:list-item>" for item in items)
    return f'<text:list text:style-name="L1"{more}>{listed}</text:list>'


def numbered(body: str, levels: str) -> list[str]:
    """Lines of a text whose lists have these levels, and whose first headings are numbered."""
    outline = '<text:outline-level-style text:level="1" style:num-format="I" style:num-suffix="."/>'
    parts = {
        "styles.xml": f'<office:document-styles {NAMES}><text:list-style style:name="L1">{levels}</text:list-style>'
        f"<text:outline-style>{outline}</text:outline-style></office:document-styles>"
    }
    text = parser_of(".odt")(files.opendocument("text", body, parts=parts)).sections[0].text
    return [line for line in text.split("\n") if line]


def test_numbers_of_lists_and_headings() -> None:
    rent, pets, keys = (f"<text:p>{word}</text:p>" for word in ("Rent", "Pets", "Keys"))
    inner = f"<text:list><text:list-item>{pets}</text:list-item><text:list-item>{keys}</text:list-item></text:list>"
    body = (
        '<text:h text:outline-level="1">Terms</text:h>'
        + clauses(rent, pets + inner)
        + "<text:p>With permission.</text:p>"
        + clauses(keys, more=' text:continue-numbering="true"')
        + '<text:h text:outline-level="1" text:is-list-header="true">Aside</text:h>'
        + '<text:h text:outline-level="2">Part</text:h><text:h text:outline-level="1">End</text:h>'
        + clauses(rent)
        + clauses(rent).replace("<text:list-item>", '<text:list-item text:start-value="7">')
    )
    assert numbered(body, level(1, "1") + level(2, "a", ")", 2)) == [
        "# I. Terms",
        "1. Rent",
        "2. Pets",
        "  2.a) Pets",
        "  2.b) Keys",
        "With permission.",
        "3. Keys",
        "# Aside",
        "## Part",
        "# II. End",
        "1. Rent",
        "7. Rent",
    ]


def test_signs_and_paragraphs_within_items() -> None:
    body = clauses("<text:p>Rent</text:p><text:p>It is due in May.</text:p>", "<text:p>Pets</text:p>")
    sign = '<text:list-level-style-bullet text:level="1" text:bullet-char="•"/>'
    assert numbered(body, sign) == ["- Rent", "  It is due in May.", "- Pets"]
    assert numbered(body, level(1, "1")) == ["1. Rent", "  It is due in May.", "2. Pets"]
    assert numbered(body, level(1, "")) == ["- Rent", "  It is due in May.", "- Pets"]


def test_a_list_that_goes_on_from_one_by_its_name() -> None:
    named = ' xml:id="list7"'
    body = clauses("<text:p>a</text:p>", more=named) + clauses("<text:p>b</text:p>")
    body += clauses("<text:p>c</text:p>", more=' text:continue-list="list7"')
    assert numbered(body, level(1, "1")) == ["1. a", "1. b", "2. c"]


def test_deleted_headings_and_those_of_lists_are_not_counted_twice() -> None:
    deleted = '<text:changed-region><text:h text:outline-level="1">Old</text:h></text:changed-region>'
    body = f"<text:tracked-changes>{deleted}</text:tracked-changes>"
    body += clauses('<text:h text:outline-level="1">First</text:h>') + '<text:h text:outline-level="1">Second</text:h>'
    assert numbered(body, level(1, "1")) == ["# 1. First", "# I. Second"]


@pytest.mark.parametrize(
    ("levels", "lines"),
    [
        (level(1, "1") + level(2, "1", ".", 2), ["# 1. Terms", "## 1.1. Rent", "## 1.2. Pets", "    x", "2. end"]),
        (level(1, "") + level(2, ""), ["# Terms", "## Rent", "## Pets", "    x", "- end"]),
    ],
    ids=["numbers", "none"],
)
def test_headings_in_lists_are_headings(levels: str, lines: list[str]) -> None:
    """As texts have them that were written by other programs."""
    terms, rent, pets = (
        f'<text:h text:outline-level="{depth}">{text}</text:h>'
        for depth, text in ((1, "Terms"), (2, "Rent"), (2, "Pets"))
    )
    inner = "".join(f"<text:list-item>{each}</text:list-item>" for each in (rent, f"{pets}<text:p>x</text:p>"))
    body = clauses(f"{terms}<text:list>{inner}</text:list>", "<text:p>end</text:p>")
    assert numbered(body, levels) == lines


def test_a_list_within_another_one_may_have_a_style_of_its_own() -> None:
    inner = "<text:list text:style-name='L2'><text:list-item><text:p>x</text:p></text:list-item></text:list>"
    bullets = '</text:list-style><text:list-style style:name="L2">'
    bullets += '<text:list-level-style-bullet text:level="2" text:bullet-char="•"/>'
    body = clauses(f"<text:p>a</text:p>{inner}", "<text:p>b</text:p>")
    assert numbered(body, level(1, "1") + level(2, "1") + bullets) == ["1. a", "  - x", "2. b"]


def test_levels_without_a_number_and_deep_ones() -> None:
    deep = "".join(level(depth, "1", ".", depth) for depth in range(2, 11))
    body = clauses("<text:p>a</text:p>" + "<text:list><text:list-item><text:p>b</text:p></text:list-item></text:list>")
    assert numbered(body, level(1, "") + deep)[1] == "  1. b"
    bomb = level(1, "1") + level(999_999_999, "1", ".", 999_999_999)
    assert numbered(clauses("<text:p>a</text:p>"), bomb) == ["1. a"]
    assert CountedList({9: Level(text="%9.%10")}, {8: 2}).next_text(9) == "2.1"
