"""Word's documents: what the converter leaves out, or counts in its own way, is read as programs show it."""

from __future__ import annotations

import re
from io import BytesIO
from zipfile import ZipFile

import pytest

from common.library.readers.numbering import in_form
from common.library.readers.word import read_docx
from tests.common.library.readers import files


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(text: str, depth: int | None = None, number: int = 1) -> str:
    """A paragraph, one of a list where it has a depth."""
    numbered = f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{number}"/></w:numPr>'
    return f"<w:p><w:pPr>{'' if depth is None else numbered}</w:pPr>{run(text)}</w:p>"


def level(depth: int, form: str, text: str, more: str = "") -> str:
    kind = f'<w:start w:val="1"/><w:numFmt w:val="{form}"/>'
    return f'<w:lvl w:ilvl="{depth}">{kind}{more}<w:lvlText w:val="{text}"/></w:lvl>'


def lists(levels: str, *numbers: str) -> str:
    """The part with lists: numbers of one kind of list, each with what it has of its own."""
    named = "".join(
        f'<w:num w:numId="{name}"><w:abstractNumId w:val="7"/>{own}</w:num>'
        for name, own in enumerate(numbers or [""], 1)
    )
    return f'<w:abstractNum w:abstractNumId="7">{levels}</w:abstractNum>{named}'


def text_of(body: str, numbering: str = "", styles: str = "", header: str = "") -> str:
    return read_docx(files.docx([], body, header, numbering, styles)).sections[0].text


class TestNumbers:
    def test_a_list_goes_on_behind_other_paragraphs(self) -> None:
        body = paragraph("Rent.", 0) + paragraph("Pets.", 0) + paragraph("With permission.") + paragraph("Notice.", 0)
        lines = ["1. Rent.", "2. Pets.", "With permission.", "3. Notice."]
        assert text_of(body, lists(level(0, "decimal", "%1."))).split("\n\n") == lines

    def test_of_several_levels(self) -> None:
        levels = (
            level(0, "upperRoman", "%1.") + level(1, "decimal", "%1.%2", "<w:isLgl/>") + level(2, "lowerLetter", "(%3)")
        )
        depths = [0, 1, 1, 2, 2, 0, 1, 2]
        body = "".join(paragraph("x", depth) for depth in depths)
        numbers = ["I.", "1.1", "1.2", "(a)", "(b)", "II.", "2.1", "(a)"]
        assert text_of(body, lists(levels)).split("\n\n") == [f"{number} x" for number in numbers]

    def test_of_headings_and_of_styles_that_are_based_on_others(self) -> None:
        numbered = '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>'
        styles = (
            f'<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/>{numbered}</w:style>'
            f'<w:style w:type="paragraph" w:styleId="Clause"><w:name w:val="Clause"/>{numbered}</w:style>'
            '<w:style w:type="paragraph" w:styleId="Mine"><w:name w:val="Mine"/><w:basedOn w:val="Clause"/></w:style>'
        )
        levels = level(0, "decimal", "§ %1", '<w:pStyle w:val="Heading1"/>') + level(
            1, "decimal", "%1.%2", '<w:pStyle w:val="Clause"/>'
        )
        paragraphs = [("Heading1", "Rent"), ("Clause", "a"), ("Mine", "b"), ("Heading1", "Keys"), ("Clause", "c")]
        content = read_docx(files.docx(paragraphs, numbering=lists(levels), styles=styles))
        assert content.sections[0].text.split("\n\n") == ["# § 1 Rent", "1.1 a", "1.2 b", "# § 2 Keys", "2.1 c"]

    def test_a_list_that_begins_anew(self) -> None:
        anew = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride>'
        body = "".join(paragraph("x", 0, number) for number in (1, 1, 2, 2, 3))
        numbers = lists(level(0, "decimal", "%1)"), "", anew, "")
        assert [line[0] for line in text_of(body, numbers).split("\n\n")] == list("12567")

    def test_levels_that_a_list_has_of_its_own(self) -> None:
        own = f'<w:lvlOverride w:ilvl="0">{level(0, "upperLetter", "(%1)")}</w:lvlOverride>'
        body = "".join(paragraph("x", 0, number) for number in (1, 2, 1))
        numbers = ["1. x", "(B) x", "3. x"]
        assert text_of(body, lists(level(0, "decimal", "%1."), "", own)).split("\n\n") == numbers

    def test_a_level_that_never_begins_anew(self) -> None:
        levels = level(0, "upperRoman", "%1.") + level(1, "decimal", "§ %2", '<w:lvlRestart w:val="0"/>')
        body = "".join(paragraph("x", depth) for depth in (0, 1, 1, 0, 1))
        assert text_of(body, lists(levels)).split("\n\n") == ["I. x", "§ 1 x", "§ 2 x", "II. x", "§ 3 x"]

    def test_a_level_that_other_lists_lack(self) -> None:
        own = f'<w:lvlOverride w:ilvl="1">{level(1, "decimal", "%1.%2")}</w:lvlOverride>'
        body = paragraph("x", 0, 1) + paragraph("x", 1, 2) + paragraph("x", 0, 1)
        numbers = ["1. x", "1.1 x", "2. x"]
        assert text_of(body, lists(level(0, "decimal", "%1."), "", own)).split("\n\n") == numbers

    @pytest.mark.parametrize("said", ["1.0", "x", "-7", "9" * 5000])
    def test_numbers_that_are_none(self, said: str) -> None:
        levels = level(0, "decimal", "%1.").replace('<w:start w:val="1"/>', f'<w:start w:val="{said}"/>')
        assert text_of(paragraph("a", 0), lists(levels)) == "1. a"
        body = paragraph("a", 0).replace('<w:ilvl w:val="0"/>', f'<w:ilvl w:val="{said}"/>')
        assert text_of(body, lists(level(0, "decimal", "%1."))) == "1. a"

    def test_signs_stay_with_the_converter(self) -> None:
        body = paragraph("milk", 0) + paragraph("tea", 0)
        assert text_of(body, lists(level(0, "bullet", "•"))) == "* milk\n* tea"

    def test_paragraphs_without_one(self) -> None:
        """One that ends a list, one of a list that is missing, and one that was removed."""
        removed, away = (
            paragraph("", 0).replace("</w:numPr>", f"</w:numPr><w:rPr><w:{how}/></w:rPr>")
            for how in ("del", "moveFrom")
        )
        body = paragraph("a", 0) + removed + away + paragraph("b", 0, 0) + paragraph("c", 0, 9) + paragraph("d", 0)
        assert text_of(body, lists(level(0, "decimal", "%1."))).split("\n\n") == ["1. a", "b", "c", "2. d"]

    @pytest.mark.parametrize(
        ("count", "form", "text"),
        [
            (1994, "upperRoman", "MCMXCIV"),
            (4, "lowerRoman", "iv"),
            (4000, "upperRoman", "4000"),
            (27, "lowerLetter", "aa"),
            (26, "upperLetter", "Z"),
            (0, "upperLetter", "0"),
            (10**9, "upperLetter", "1000000000"),
            (7, "decimalZero", "07"),
            (7, "none", ""),
            (7, "hebrew1", "7"),
        ],
    )
    def test_forms(self, count: int, form: str, text: str) -> None:
        assert in_form(count, form) == text


def formula(inner: str) -> str:
    return f"<w:p>{run('so ')}<m:oMath>{inner}</m:oMath>{run(' holds')}</w:p>"


def maths(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def part(name: str, *inner: str) -> str:
    """Parts of a formula by the same name."""
    return "".join(f"<m:{name}>{each}</m:{name}>" for each in inner)


HALF = part("f", part("num", maths("1")) + part("den", maths("2")))
MATRIX = part("m", part("mr", part("e", maths("1"), maths("2")), part("e", maths("3"), maths("4"))))


class TestWords:
    def test_in_formulas_and_fields(self) -> None:
        fraction = f"<m:f><m:num>{maths('a+1')}</m:num><m:den>{maths('2')}</m:den></m:f>"
        power = f"<m:sSup><m:e>{maths('x')}</m:e><m:sup>{maths('2')}</m:sup></m:sSup>"
        field = f'<w:p>{run("due on ")}<w:fldSimple w:instr="DATE">{run("3 May")}</w:fldSimple></w:p>'
        text = "so y=(a+1)/2-x^2 holds\n\ndue on 3 May"
        assert text_of(formula(maths("y=") + fraction + maths("-") + power) + field) == text

    @pytest.mark.parametrize(
        ("inner", "text"),
        [
            (maths("f") + part("d", part("e", maths("x+1"))), "f(x+1)"),
            (part("d", '<m:dPr><m:begChr m:val="["/><m:endChr m:val=""/></m:dPr>' + part("e", maths("x"))), "[x"),
            (part("d", part("e", maths("x"), maths("y"))), "(x|y)"),
            (part("d", '<m:dPr><m:sepChr m:val=","/></m:dPr>' + part("e", maths("x"), maths("y"))), "(x,y)"),
            (
                part(
                    "nary",
                    '<m:naryPr><m:chr m:val="∑"/></m:naryPr>'
                    + part("sub", maths("i=1"))
                    + part("sup", maths("n"))
                    + part("e", maths("x")),
                ),
                "∑_(i=1)^n x",
            ),
            (part("nary", "<m:sub/><m:sup/>" + part("e", maths("x dx"))), "∫ x dx"),
            (MATRIX, "[1, 2; 3, 4]"),
            (part("d", part("e", MATRIX)), "(1, 2; 3, 4)"),
            (part("eqArr", part("e", maths("x=1"), maths("y=2"))), "x=1; y=2"),
            (
                part(
                    "func",
                    part("fName", part("limLow", part("e", maths("lim")) + part("lim", maths("n→∞"))))
                    + part("e", maths("a")),
                ),
                "lim_(n→∞) a",
            ),
            (part("limUpp", part("e", maths("x")) + part("lim", maths("def"))), "x^def"),
            (maths("2") + HALF, "2 1/2"),
            (maths("x=") + HALF + maths("3"), "x=1/2 3"),
            (part("sSup", part("e", maths("x")) + part("sup", maths("2"))) + HALF + HALF, "x^2 1/2 1/2"),
            (maths("1") + maths("2") + maths("x"), "12x"),
            (
                part("acc", '<m:accPr><m:chr m:val="\u0304"/></m:accPr>' + part("e", maths("x")))
                + maths("=")
                + part("bar", '<m:barPr><m:pos m:val="top"/></m:barPr>' + part("e", maths("y"))),
                "x\u0304=y\u0305",
            ),
            (part("acc", part("e", maths("p"))) + part("bar", part("e", maths("a+b"))), "p\u0302(a+b)\u0332"),
            (part("sPre", part("sub", maths("6")) + part("sup", maths("14")) + part("e", maths("C"))), "_6^14C"),
        ],
        ids=[
            *("brackets", "one bracket", "parts", "signs between", "sum", "integral", "matrix", "matrix in brackets"),
            *("equations", "limit", "above", "mixed number", "factor behind", "factors", "parts of a number"),
            *("accent and bar", "without properties", "before"),
        ],
    )
    def test_in_parts_of_formulas(self, inner: str, text: str) -> None:
        assert text_of(formula(inner)) == f"so {text} holds"

    @pytest.mark.parametrize(
        ("inner", "text"),
        [
            (
                f"<w:r><w:ruby><w:rubyPr/><w:rt>{run('とうきょう')}</w:rt><w:rubyBase>{run('東京')}</w:rubyBase></w:ruby></w:r>",
                "in 東京 now",
            ),
            (f'<w:bdo w:val="rtl">{run("שלום")}</w:bdo><w:dir w:val="rtl">{run("!")}</w:dir>', "in שלום! now"),
            ("<w:r><w:t>one</w:t><w:cr/><w:t>two</w:t></w:r>", "in one\ntwo now"),
            ("<w:r><w:t>one</w:t><w:ptab/><w:t>two</w:t></w:r>", "in one two now"),
        ],
        ids=["readings", "directions", "line end", "tab"],
    )
    def test_in_parts_of_a_line(self, inner: str, text: str) -> None:
        assert text_of(f"<w:p>{run('in ')}{inner}{run(' now')}</w:p>") == text

    @pytest.mark.parametrize("old", [None, "picture", "box"])
    def test_in_boxes_once(self, old: str | None) -> None:
        box = f"<w:txbxContent>{paragraph('In the box.')}</w:txbxContent>"
        new = f"<w:drawing><wp:inline xmlns:wp='urn:wp'><x:txbx xmlns:x='urn:x'>{box}</x:txbx></wp:inline></w:drawing>"
        fallback = f"<w:pict>{box if old == 'box' else ''}</w:pict>"
        if old is not None:
            new = (
                f'<mc:AlternateContent><mc:Choice Requires="wps">{new}</mc:Choice>'
                f"<mc:Fallback>{fallback}</mc:Fallback></mc:AlternateContent>"
            )
        assert text_of(f"<w:p>{run('Before')}<w:r>{new}</w:r>{run(' after.')}</w:p>").split("\n\n") == [
            "Before after.",
            "In the box.",
        ]

    def test_above_pages_do_not_run_together(self) -> None:
        tabs = '<w:pPr><w:tabs><w:tab w:val="center"/></w:tabs></w:pPr>'
        header = (
            f"{tabs}{run('Ada Ltd')}<w:r><w:tab/></w:r>{run('Contract 4711')}<w:r><w:br/></w:r>{run('1 Main Street')}"
        )
        assert text_of(paragraph("body"), header=header) == "Ada Ltd Contract 4711\n1 Main Street\n\nbody"

    def test_in_rows_that_begin_later(self) -> None:
        def row(*words: str, more: str = "") -> str:
            return part("tr", more + part("tc", *map(paragraph, words))).replace("m:t", "w:t")

        later = '<w:trPr><w:gridBefore w:val="1"/></w:trPr>'
        table = f"<w:tbl>{row('item', 'kind', 'price')}{row('red', '10', more=later)}{row('tea', 'green', '7')}</w:tbl>"
        lines = ["item, kind, price", "kind: red; price: 10", "item: tea; kind: green; price: 7"]
        assert text_of(table).split("\n") == lines

    def test_in_boxes_above_pages_once(self) -> None:
        box = f"<w:txbxContent>{paragraph('Ada Ltd')}{paragraph('Contract 4711')}</w:txbxContent>"
        both = f"<x:Choice xmlns:x='urn:x'>{box}</x:Choice><w:pict>{box}</w:pict>"
        text = text_of(paragraph("body"), header=f"<w:r>{both}</w:r>{run('1 Main Street')}")
        assert text == "1 Main Street\nAda Ltd\nContract 4711\n\nbody"

    def test_in_parts_by_other_names(self) -> None:
        """Programs choose them at will: what refers to them says them."""
        body = paragraph("Rent.", 0) + formula(f"<m:f>{part('num', maths('a'))}{part('den', maths('b'))}</m:f>")
        document, renamed = files.docx([], body, "", lists(level(0, "decimal", "§ %1"))), BytesIO()
        with ZipFile(BytesIO(document)) as read, ZipFile(renamed, "w") as written:
            for name in read.namelist():
                text = re.sub(r"(document|styles|numbering)\.xml", r"\1-2.xml", read.read(name).decode())
                written.writestr(re.sub(r"(document|styles|numbering)\.xml", r"\1-2.xml", name), text)
        assert read_docx(renamed.getvalue()).sections[0].text == "§ 1 Rent.\n\nso a/b holds"
