"""Options shared by commands, their request fields, and text input."""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup

from common.methods.catalog import METHODS
from device.cli.failures import bad_input

METHOD_NAMES = Literal[*METHODS]  # type: ignore[valid-type]

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="DRAGON_URL", help="Address of the device daemon [default: from its settings]"),
]
# No option for the key: all users can read a process's arguments.
KeyFile = Annotated[
    Path | None,
    typer.Option("--api-key-file", help="File with the daemon's API key [default: $DRAGON_API_KEY]"),
]
Authority = Annotated[
    Path | None,
    typer.Option("--ca", envvar="DRAGON_CA", help="PEM file of the certificates to trust, for https"),
]
Question = Annotated[str | None, typer.Argument(help="The question; - or none reads it from standard input")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead")]


# Everybody's options; the others compare methods.
EVERYDAY = (
    "sources",
    "documents",
    "device_documents",
    "cloud_documents",
    "privacy",
    "wait",
    "max_tokens",
    "temperature",
    "seed",
    "stop",
    "method",
    "long_document",
)
RESEARCH = "For research"
SPELT = {"device_documents": "--only"}  # not named like their fields
_SHOWN = {"device_documents": "<pattern>", "cloud_documents": "<pattern>"}
_FILES = "--files"
WHOLE = 1000  # characters, above every first sentence


class CommandGroup(TyperGroup):
    """Commands whose help shows the whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        records = [
            (name, command.get_short_help_str(WHOLE))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(records)


class Asking(TyperCommand):
    """A command that asks. Its help lists everyday options first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Lets `--files` take all following names of existing files."""
        return super().parse_args(ctx, _each_with_its_option(args))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], RESEARCH: []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            if parameter.param_type_name == "argument":
                sections["Arguments"].append(record)
            else:
                everyday = parameter.name in EVERYDAY or parameter.name not in _described()
                sections["Options" if everyday else RESEARCH].append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def _each_with_its_option(args: Sequence[str]) -> list[str]:
    """Turns `--files a b` or `--files=a b` into `--files a --files b`."""
    spread: list[str] = []
    left = list(args)
    while left:
        spread.append(left.pop(0))
        if spread[-1] == "--":
            return [*spread, *left]
        if spread[-1] == _FILES and left:
            spread.append(left.pop(0))
        elif not spread[-1].startswith(f"{_FILES}="):
            continue
        while left and not left[0].startswith("-") and os.path.isfile(left[0]):  # takes text of any length
            spread += [_FILES, left.pop(0)]
    return spread


def is_text(text: str) -> bool:
    """Whether all bytes were characters."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def from_stdin(read: Callable[[], str]) -> str:
    """Raises `CommandFailed` for another encoding."""
    try:
        text = read()
    except UnicodeDecodeError:
        text = "\udcff"  # as some terminals pass such bytes
    if not is_text(text):
        raise bad_input(
            f"standard input is not text in the encoding {sys.stdin.encoding}: convert it, for example with iconv"
        )
    return text


def read_question(given: str | None) -> str:
    """Returns the given question, or standard input for `-` and None.

    Raises `CommandFailed` for an empty question, and for None at a terminal.
    """
    if given is None and sys.stdin.isatty():
        raise bad_input('there is no question; write it in quotes: `dragon ask "..."`')
    text = from_stdin(sys.stdin.read) if given is None or given == "-" else given
    if not text.strip():
        raise bad_input("the question is empty")
    return text


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Adds a request's options to a command's own.

    `fields` is the request body of the given options. The daemon's settings decide others.
    """
    own = inspect.signature(command, eval_str=True).parameters
    shared = {parameter.name: parameter for parameter in _request_options()}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        values = {name: given.pop(name) for name in shared}
        fields = {name: value for name, value in values.items() if value is not None and value != []}
        for name, value in fields.items():
            if isinstance(value, float) and not math.isfinite(value):  # JSON has no such number
                raise bad_input(f"--{name.replace('_', '-')} must be a finite number, not {value}")
        command(**given, fields=fields)

    listed = [*shared.values(), *(parameter for name, parameter in own.items() if name != "fields")]
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in listed]
    run.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    return run


def _request_options() -> list[inspect.Parameter]:
    """Lists the options of all methods, everyday ones first."""
    described = _described()
    names = sorted(described, key=lambda name: EVERYDAY.index(name) if name in EVERYDAY else len(EVERYDAY))
    return [
        _option(name, METHOD_NAMES if name == "method" else field.annotation, field.description)
        for name, field in ((name, described[name]) for name in names)
    ]


def _described() -> dict[str, FieldInfo]:
    fields = {name: field for method in METHODS.values() for name, field in method.request.model_fields.items()}
    return {name: field for name, field in fields.items() if field.description is not None}


def _option(name: str, kind: Any, explanation: str | None) -> inspect.Parameter:
    kind = _bare(kind)
    listed = get_origin(kind) is tuple
    taken: Any = list[get_args(kind)[0]] if listed else kind  # type: ignore[misc]
    shown = _SHOWN.get(name, "<str>") if listed else None
    if name == "method":  # too long for the line of values
        shown, explanation = "<name>", f"{explanation}: {', '.join(METHODS)}"
    # None: named like the field, with `--no-` for a switch.
    spelt = (SPELT[name], f"--{name.replace('_', '-')}") if name in SPELT else ()
    annotation: Any = Annotated[taken | None, typer.Option(*spelt, help=explanation, metavar=shown)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _bare(kind: Any) -> Any:
    """Strips pydantic's annotations from a type."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(map(_bare, get_args(kind)))]  # noqa: UP007
    return kind
