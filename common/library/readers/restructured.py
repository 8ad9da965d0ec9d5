"""Reader of reStructuredText, also with extensions such as Sphinx's."""

from __future__ import annotations

import re
from typing import Any, Final

from bs4 import BeautifulSoup
from docutils import nodes
from docutils.core import publish_parts
from docutils.parsers.rst import Directive, directives, roles
from docutils.parsers.rst.languages import en

from common.library.readers.content import Content, Section, in_lines, unread
from common.library.readers.encodings import text_and_remarks
from common.library.readers.markup import markdown

_SETTINGS: Final = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "report_level": 3,  # an error message quotes the faulty text, which is nowhere else
    "warning_stream": False,
    "halt_level": 5,
    "input_encoding": "unicode",
    "output_encoding": "unicode",
    "smart_quotes": False,
    "math_output": "LaTeX",  # as written
    "toc_backlinks": False,
    "_disable_config": True,
}
_DIRECTIVE: Final = re.compile(r"^[ \t]*\.\.[ \t]+([\w:.+-]+?)[ \t]?::(?:[ \t]|$)", re.MULTILINE)
_INCLUDED: Final = re.compile(r"^[ \t]*\.\.[ \t]+(?:literal)?include[ \t]?::", re.MULTILINE)
_ROLE: Final = re.compile(r":([\w:.+-]+):`|`:([\w:.+-]+):")
_TARGET: Final = re.compile(r"[ \t\n]*<[^<>]*>$")
# The header of a Python Enhancement Proposal.
_PREAMBLE_TITLE: Final = re.compile(r"(?:[\w-]+:.*\n(?:[ \t].*\n)*)*?Title:[ \t]*(\S.*)")


def read_rst(content: bytes) -> Content:
    """Reads the whole text, including unknown directives, except raw and included content.

    Raises `Unreadable`.
    """
    text, guessed = text_and_remarks(content)
    for name in {found.lower() for found in _DIRECTIVE.findall(text)}:
        directives.register_directive(name, _with_any_option(name) if name in en.directives else _Unknown)
    for name in {found.lower() for pair in _ROLE.findall(text) for found in pair if found} - en.roles.keys():
        roles.register_canonical_role(name, _unknown_role)
    parts = publish_parts(text, writer="html5", settings_overrides=_SETTINGS)
    preamble = _PREAMBLE_TITLE.match(in_lines(text))
    title = preamble.group(1).strip() if preamble else BeautifulSoup(parts["title"], "lxml").get_text()
    page = BeautifulSoup(parts["html_body"], "lxml")
    for message in page(class_="system-message"):
        source = message.find("pre")
        message.replace_with(*[source] if source else [])
    for emptied in page(class_="system-messages"):
        emptied.decompose()
    included = unread(len(_INCLUDED.findall(text)), "included file")
    return Content((Section(markdown(page), unit="heading"),), title, (*guessed, *included))


class _Any(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return directives.unchanged


def _with_any_option(name: str) -> Any:
    known, _ = directives.directive(name, en, None)
    if not known.option_spec or isinstance(known.option_spec, _Any):
        return known

    class Tolerant(known):  # type: ignore[misc, valid-type]
        option_spec = _Any(known.option_spec, name=directives.unchanged)

        def run(self) -> list[Any]:
            caption = self.options.pop("caption", None)
            return [*([nodes.paragraph("", caption)] if caption else []), *super().run()]

    return Tolerant


class _Unknown(Directive):  # type: ignore[misc]
    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True

    option_spec = _Any(name=directives.unchanged)  # an empty dict would mean no options

    def run(self) -> list[Any]:
        held = nodes.container()
        if self.arguments:
            words, _ = self.state.inline_text(f"{self.name}: {self.arguments[0]}", self.lineno)
            held += nodes.paragraph("", "", *words)
        self.state.nested_parse(self.content, self.content_offset, held)
        return [held]


def _unknown_role(name: str, raw: str, text: str, *others: Any) -> tuple[list[Any], list[Any]]:
    shown = _TARGET.sub("", text).lstrip("~!") or text
    return [nodes.inline(raw, shown)], []
