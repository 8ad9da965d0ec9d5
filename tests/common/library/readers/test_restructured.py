"""reStructuredText, also what Sphinx adds to it: nothing that was written is lost."""

from __future__ import annotations

import pytest

from common.library.readers.restructured import read_rst


def test_what_docutils_does_not_know() -> None:
    content = b""".. versionadded:: 3.8
   With a cup.

.. py:function:: pour(cup, *, sugar)
   :module: tea
   :noindex:

   Pours. See :func:`~tea.boil` and :ref:`the kettle <kettle>`.

   :param cup: any

.. tabs::

   .. tab:: Linux

      Install it.

A `plain` :sup:`2` word.
"""
    assert read_rst(content).sections[0].text.split("\n") == [
        "versionadded: 3.8",
        "With a cup.",
        "",
        "py:function: pour(cup, *, sugar)",
        "",
        "Pours. See tea.boil and the kettle.",
        "",
        "param cup:",
        ":   any",
        "",
        "tab: Linux",
        "",
        "Install it.",
        "",
        "A plain ^2 word.",
    ]


def test_formulas_of_restructured_text() -> None:
    content = read_rst(b"Energy :math:`E = mc^2` here.\n\n.. math::\n\n   \\frac{a}{b} = c\n")
    assert [line for line in content.sections[0].text.split("\n") if line] == [
        "Energy E = mc^2 here.",
        "```",
        r"\frac{a}{b} = c",
        "```",
    ]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (
            ".. code-block:: python\n   :caption: tea.py\n   :linenos:\n\n   import kettle\n",
            ["tea.py", "```", "import kettle", "```"],
        ),
        (".. math::\n   :label: one\n\n   kettle = 1\n", ["```", "kettle = 1", "```"]),
        (".. note::\n   :collapsible:\n\n   A red kettle.\n", ["Note", "A red kettle."]),
        (".. figure:: x.png\n   :zoomable:\n\n   A red kettle.\n", ["A red kettle."]),
        (".. meta::\n   :keywords: tea\n", []),
    ],
    ids=["code", "formula", "note", "figure", "none"],
)
def test_options_that_docutils_does_not_know(source: str, lines: list[str]) -> None:
    for _ in range(2):  # as one process reads several
        text = read_rst(f"Above\n\n{source}\n\nBelow\n".encode()).sections[0].text
        assert [line for line in text.split("\n") if line] == ["Above", *lines, "Below"]


@pytest.mark.parametrize(
    "source",
    [
        "====  ====\nName  Cost\n====  ====\nkettle  12\n====  ====\n",
        "+---+\n| kettle |\n+---+\n",
        ".. list-table::\n\n   * - A\n     - B\n   * - kettle\n",
        ".. admonition::\n\n   kettle\n",
        ".. image:: x.png\n   :width: kettle\n",
        "One\n===\n\nTwo\n---\n\nThree\n=====\n\nkettle\n~~~~~~\n\nFour\n----\n\nkettle\n^^^^^^",
    ],
    ids=["simple table", "table", "list", "no title", "no width", "heading"],
)
def test_what_docutils_finds_an_error_in(source: str) -> None:
    text = read_rst(f"Above\n\n{source}\n\nBelow, see U_ and |x|.\n".encode()).sections[0].text
    assert text.startswith(("Above", "#"))
    assert text.count("kettle") == source.count("kettle")
    assert text.endswith("Below, see U_ and |x|.")
    assert "ystem" not in text and "rror" not in text
