"""Pages: every word that a browser shows is read, and tables name their columns."""

from __future__ import annotations

import pytest

from common.library.readers.content import headings
from common.library.readers.markup import read_html


def test_parts_of_a_page_do_not_run_together() -> None:
    content = b"<nav>Home</nav><main>It weighs 10<sup>3</sup> kg.<details><summary>Why?</summary>So.</details></main>"
    content += b"<form><input type=checkbox checked><label>yes</label></form><footer>The end</footer>"
    lines = ["Home", "It weighs 10^3 kg.", "Why?", "So.", "[x]", "yes", "The end"]
    assert [line for line in read_html(content).sections[0].text.split("\n") if line] == lines


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("<mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup>", "E=mc^2"),
        ("<mfrac><mrow><mi>a</mi><mo>+</mo><mn>1</mn></mrow><msqrt><mi>b</mi></msqrt></mfrac>", "(a+1)/(√b)"),
        (r"<mi>x</mi><annotation encoding=application/x-tex>{\displaystyle x_{0}}</annotation>", "x_{0}"),
        ("<mi>f</mi><mfenced><mi>x</mi><mi>y</mi></mfenced>", "f(x,y)"),
        ("<mfenced open='[' close='' separators=';|'><mn>1</mn><mn>2</mn><mn>3</mn><mn>4</mn></mfenced>", "[1;2|3|4"),
        ("<mfenced separators=''><mn>1</mn><mn>2</mn></mfenced>", "(12)"),
        ("<mn>2</mn><mfrac><mn>1</mn><mn>2</mn></mfrac>", "2 1/2"),
        ("<mrow><mfrac><mn>1</mn><mn>2</mn></mfrac></mrow><mn>3</mn><mi>x</mi>", "1/2 3x"),
        ("<mn>2</mn><mo>&#x2064;</mo><mfrac><mn>1</mn><mn>3</mn></mfrac>", "2 1/3"),
        ("<mn>2</mn><mo>&#x2062;</mo><msup><mn>10</mn><mn>3</mn></msup>", "2 10^3"),
        ("<mn>2</mn><mo>&#x2062;</mo><mi>x</mi><mo>&#x2062;</mo><mi>y</mi>", "2xy"),
        ("<mi>sin</mi><mo>&#x2061;</mo><mi>x</mi>", "sin x"),
        ("<mi>f</mi><mo>&#x2061;</mo><mfenced><mi>y</mi></mfenced>", "f(y)"),
        (
            "<mtable><mtr><mtd>1</mtd><mtd>2</mtd></mtr><mtr><mtd>3</mtd><mtd>4</mtd></mtr></mtable>",
            "1 2; 3 4",
        ),
    ],
    ids=[
        "power",
        "fraction",
        "TeX",
        "brackets",
        "signs between",
        "no sign between",
        "mixed number",
        "factor",
        "sign of adding",
        "sign of multiplying",
        "sign between letters",
        "function",
        "function with brackets",
        "matrix",
    ],
)
def test_formulas_of_a_page(formula: str, text: str) -> None:
    content = read_html(f"<p>so <math>{formula}</math> holds</p>".encode())
    assert content.sections[0].text == f"so {text} holds"


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("<tr><th>car<th>price<tr><td><a href=x>Zoe</a><td>31", ["car, price", "car: Zoe; price: 31"]),
        ("<tr><td>Name<td>Ada<tr><td>Born<td>1815", ["Name, Ada", "Born, 1815"]),
        ("<tr><td>a<td>b<td>c<tr><td>x<td><td>10<sup>3</sup>", ["a, b, c", "a: x; c: 10^3"]),
        (
            "<caption>Cars</caption><tr><th>car<th>price<tr><td>Zoe<td>3",
            ["Cars", "car, price", "car: Zoe; price: 3"],
        ),
        (
            "<tr><th>a<th>b<th>c<tr><td rowspan=2>x<td>1<td>2<tr><td>3<td>4",
            ["a, b, c", "a: x; b: 1; c: 2", "a: x; b: 3; c: 4"],
        ),
        (
            "<tr><th>a<th>b<th>c<tr><td colspan=2>x<td rowspan=9>2<tr><td>3<td>4",
            ["a, b, c", "a: x; c: 2", "a: 3; b: 4; c: 2"],
        ),
        (
            "<tr><th>a<th>b<th>c<tr><td colspan=2 rowspan=2>x<td>1<tr><td>2<tr><td>y<td>z<td>3",
            ["a, b, c", "a: x; c: 1", "a: x; c: 2", "a: y; b: z; c: 3"],
        ),
        (
            "<tr><th colspan=2 rowspan=2><th colspan=2>Sales<tr><th>2025<th>2026<tr><th>North<th>a<td>1<td>2",
            ["Sales", "2025, 2026", "North; a; 2025: 1; 2026: 2"],
        ),
        ("<tr><td>menu<td><table><tr><td>in<td>out</table>", ["menu", "in, out"]),
        ("<th>car</th><th>price</th><tr><td>Zoe</td><td>3</td></tr>", ["car, price", "car: Zoe; price: 3"]),
        (
            "<thead><th>car</th><th>price</th></thead><tbody><tr><td>Zoe</td><td>3</td></tr></tbody>",
            ["car, price", "car: Zoe; price: 3"],
        ),
        (
            "<tr><th>car</th><th>price</th></tr><tr><form>Pick <input><td>Zoe</td><td>3</td></form></tr>",
            ["Pick", "car, price", "car: Zoe; price: 3"],
        ),
        ("<tbody><td>Zoe</td><td>31</td></tbody>", ["Zoe, 31"]),
        (
            "All<!-- x --><p>of <b>them</b></p><tr>cars<td>Zoe</td><td>31</td></tr>",
            ["All", "of **them**", "cars", "Zoe, 31"],
        ),
    ],
    ids=[
        *("headings", "names", "three", "caption", "tall", "wide", "both", "corner", "layout"),
        *("no row", "no row in the head", "form", "no row at all", "words outside"),
    ],
)
def test_tables_of_a_page(rows: str, lines: list[str]) -> None:
    text = read_html(f"<p>So:</p><table>{rows}</table>".encode()).sections[0].text
    assert [line for line in text.split("\n") if line] == ["So:", *lines]


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("<tr><td>Home<td><h1>Tea</h1><p>First.</p><h2>Cups</h2>So.", ["Home", "# Tea", "First.", "## Cups", "So."]),
        ("<tr><td><p>First.</p><p>Second.</p><tr><td>End", ["First.", "Second.", "End"]),
        ("<tr><td>1<td><pre>a = 1\nb = 2</pre>", ["1", "```", "a = 1", "b = 2", "```"]),
        ("<tr><th><h3>car</h3><th><h3>price</h3><tr><td>Zoe<td><pre>3</pre>", ["car, price", "car: Zoe; price: 3"]),
    ],
    ids=["headings", "one cell", "code", "none"],
)
def test_tables_that_lay_a_page_out(rows: str, lines: list[str]) -> None:
    text = read_html(f"<p>So:</p><table>{rows}</table>".encode()).sections[0].text
    assert [line for line in text.split("\n") if line] == ["So:", *lines]


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("<ul><li><pre># not\ny</pre></li></ul>", ["* ```", "  # not", "  y", "  ```"]),
        ("<pre>\n\na\n```\n# not\n````\n\n</pre>", ["`````", "a", "```", "# not", "````", "`````"]),
        ("<ol><li>So:<pre>```\n# not</pre></li></ol>", ["1. So:", "", "   ````", "   ```", "   # not", "   ````"]),
    ],
    ids=["in a list", "of Markdown", "both"],
)
def test_code_of_a_page_has_no_headings(code: str, lines: list[str]) -> None:
    text = read_html(f"{code}<h2>Yes</h2>".encode()).sections[0].text
    assert text.split("\n") == [*lines, "", "## Yes"]
    assert [heading for _, heading in headings(text)] == ["Yes"]


@pytest.mark.parametrize(
    ("ruby", "text"),
    [
        ("漢字<rp>(</rp><rt>かんじ</rt><rp>)</rp>", "漢字です"),
        ("漢<rt>かん</rt>字<rt>じ</rt>", "漢字です"),
        ("<rb>漢</rb><rb>字</rb><rtc><rt>かん</rt><rt>じ</rt></rtc>", "漢字です"),
        ("漢字<rp>(<rt>かんじ<rp>)", "漢字です"),
        ("<rb>漢<rt>かん<rb>字<rt>じ<rb>体<rt>たい", "漢字体です"),
    ],
    ids=["brackets", "of each", "apart", "not closed", "of each, not closed"],
)
def test_words_do_not_run_into_their_pronunciation(ruby: str, text: str) -> None:
    assert read_html(f"<p><ruby>{ruby}</ruby>です".encode()).sections[0].text == text


@pytest.mark.parametrize(
    "formula",
    [
        "<span class=MathJax><nobr aria-hidden=true>x<span>2</span></nobr>\n<span role=presentation>{}</span></span>",
        "<mjx-container><mjx-math aria-hidden=true><mjx-c>x2</mjx-c></mjx-math><span>{}</span></mjx-container>",
    ],
    ids=["MathJax 2", "MathJax 3"],
)
def test_formulas_that_other_programs_draw(formula: str) -> None:
    said = "<math><msup><mi>x</mi><mn>2</mn></msup></math>"
    page = f"<p>So {formula.format(said)} and <b aria-hidden=true>words</b> hold, <i aria-hidden=true>{said}</i>{said}."
    assert " ".join(read_html(page.encode()).sections[0].text.split()) == "So x^2 and **words** hold, *x^2*x^2."


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        (
            "<div>Let <math><mi>x</mi></math>.</div><div aria-hidden=true><h2>Proof</h2><p>So.</div>",
            ["Let x.", "## Proof", "So."],
        ),
        ("<p>So <math><mi>x</mi></math></p><ul aria-hidden=true><li>one</ul>", ["So x", "* one"]),
        (
            "<div aria-hidden=true>One</div><div>x: <math><mi>x</mi></math></div><div aria-hidden=true>Three</div>",
            ["One", "x: x", "Three"],
        ),
        (
            "<p>So:</p><p><math><mi>x</mi></math></p><div aria-hidden=true><h2>Proof</h2><p>Take any n.</div><p>End.",
            ["So:", "x", "## Proof", "Take any n.", "End."],
        ),
        ("<ul><li><math><mi>x</mi></math></li><li aria-hidden=true>Second</li></ul>", ["* x", "* Second"]),
        ("<div><math><mi>x</mi></math></div><div aria-hidden=true>Second slide.</div>", ["x", "Second slide."]),
        (
            "<table><tr><th>a<th>b<tr><td><math><mi>x</mi></math></td><td aria-hidden=true>y</table>",
            ["a, b", "a: x; b: y"],
        ),
    ],
    ids=["panels", "lists", "slides", "panels by formulas", "items by formulas", "slides by formulas", "cells"],
)
def test_what_is_folded_beside_formulas(page: str, lines: list[str]) -> None:
    """Scripts mark what they don't show just now as they mark drawn formulas."""
    assert [line for line in read_html(page.encode()).sections[0].text.split("\n") if line] == lines


def test_formulas_that_are_drawn_beside_what_they_say() -> None:
    said = "<span class=katex-mathml><math><msup><mi>x</mi><mn>2</mn></msup></math></span>"
    drawn = "<span class=katex-html aria-hidden=true><span>x</span><span>2</span></span>"
    page = f"<p>So <span class=katex>{said}{drawn}</span> holds, and <span class=katex>{drawn}</span>.</p>"
    assert read_html(page.encode()).sections[0].text == "So x^2 holds, and x2."
