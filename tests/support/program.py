"""Sentences that people read from the program: help, errors, progress, findings, lines of the log, the page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = ("cloud", "common", "device", "proto")
PAGE: Final = "device/page"
LEAST_WORDS: Final = 4
NOT_PROSE: Final = re.compile(
    r"\b(?:SELECT|INSERT|CREATE|DELETE|UPDATE|PRAGMA)\b|\\[swdbnS]|https?:|default-src|=yes\n"
)
LISTS: Final = ("common/answer/languages.py", "common/answer/citations.py", "common/library/readers/formats.py")


def said() -> dict[str, list[str]]:
    """The texts of each room, with "x" for what a placeholder stands for."""
    rooms = {room: list(_of_python(room)) for room in ROOMS}
    return rooms | {"page": list(_of_page()), "help": list(_of_help())}


def _of_python(room: str) -> Iterator[str]:
    for path in sorted((ROOT / room).rglob("*.py")):
        if path.relative_to(ROOT).as_posix() not in LISTS:  # of words and endings
            tree = ast.parse(path.read_text("utf-8"))
            yield from filter(_is_prose, _constants(tree, _docstrings(tree)))


def _docstrings(tree: ast.AST) -> set[int]:
    """Strings that stand alone: docstrings of modules, classes, functions and constants."""
    return {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}


def _constants(node: ast.AST, left_out: set[int]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str) and id(child) not in left_out:
            yield child.value
        elif isinstance(child, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in child.values)
            for part in child.values:
                yield from _constants(part, left_out) if not isinstance(part, ast.Constant) else ()
        else:
            yield from _constants(child, left_out)


def _of_page() -> Iterator[str]:
    for path in sorted((ROOT / PAGE / "modules").glob("*.js")):
        code = re.sub(r"/\*.*?\*/|(?:^|(?<=\s))//[^\n]*", "", path.read_text("utf-8"), flags=re.DOTALL)
        quoted = re.findall(r'"((?:[^"\\\n]|\\.)*)"', code)
        before = None
        while before != code:
            before, code = code, re.sub(r"\$\{[^{}`]*\}", "x", code)
        shown = re.findall(r">([^<>`{}=]+)<", code) + re.findall(r"`([^<>`{}=]+)`", code)
        yield from filter(_is_prose, (" ".join(each.split()) for each in (*quoted, *shown)))


def _of_help() -> Iterator[str]:
    """Help of all commands, and descriptions of all settings."""
    import typer

    from cloud.settings import CloudSettings
    from device.cli.main import app
    from device.settings import DeviceSettings

    yield from _help_of(typer.main.get_command(app))
    for settings in (DeviceSettings, CloudSettings):
        yield from (field.description for field in settings.model_fields.values() if field.description)


def _help_of(command: Any) -> Iterator[str]:
    yield command.help or ""
    yield from (each.help for each in command.params if getattr(each, "help", None))
    for each in getattr(command, "commands", {}).values():
        yield from _help_of(each)


def _is_prose(text: str) -> bool:
    words = [word for word in text.split() if re.search(r"[a-z]{2}", word)]
    return len(words) >= LEAST_WORDS and not NOT_PROSE.search(text)
