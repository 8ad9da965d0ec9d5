"""Command-line flags for every setting of a role: `--port 8600`, `--port=8600`, `--insecure`, `--insecure false`."""

from __future__ import annotations

import difflib
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from common.configuration.settings import Settings

CONFIG = "config"
LONGEST_LINE = 120  # columns; longer lines are hard to read


class FlagError(ValueError):
    """An unknown or incomplete flag, with a sentence for the user."""


def parse_flags(kind: type[Settings], arguments: Sequence[str]) -> tuple[Path | None, dict[str, object]]:
    """Returns the file of `--config` and the unchecked overrides for `load_settings`.

    Raises `FlagError`.
    """
    given: dict[str, object] = {}
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if not argument.startswith("--"):
            raise FlagError(f"{argument!r} is not a flag; write settings as --name VALUE")
        flag, has_value, value = argument.removeprefix("--").partition("=")
        name = _setting(flag, kind.model_fields)
        switch = name != CONFIG and kind.model_fields[name].annotation is bool
        if has_value:
            given[name] = value
        elif switch and (not waiting or waiting[0].startswith("--")):
            given[name] = True
        elif waiting:
            given[name] = waiting.pop(0)
        else:
            raise FlagError(f"--{flag} needs a value")
    file = given.pop(CONFIG, None)
    return (None if file is None else Path(str(file))), given


def flags_help(kind: type[Settings]) -> str:
    """Lists settings with values, meaning and default, as wide as the terminal."""
    lines = [f"Usage: dragon {kind.role} [--config FILE] [--SETTING VALUE]...", "", "Settings:"]
    for name, field in kind.model_fields.items():
        lines.append(f"  --{name.replace('_', '-')}{_values(field)}")
        lines += _wrapped(f"{(field.description or '').removesuffix('.')}{_default(field)}", "      ")
    lines += [
        "",
        *_wrapped(f"`dragon config --role {kind.role}` shows the settings in force and the origin of each.", ""),
    ]
    return "\n".join(lines)


def _wrapped(text: str, indent: str) -> list[str]:
    width = min(shutil.get_terminal_size().columns, LONGEST_LINE)
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _setting(flag: str, fields: Mapping[str, FieldInfo]) -> str:
    name = flag.replace("-", "_")
    if name == CONFIG or name in fields:
        return name
    close = difflib.get_close_matches(name, [*fields, CONFIG], n=1)
    hint = f", did you mean --{close[0].replace('_', '-')}?" if close else ""
    raise FlagError(f"there is no setting --{flag}{hint}")


def _values(field: FieldInfo) -> str:
    words = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return f" {'|'.join(words)}" if words else ""


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None or field.is_required():
        return ""
    shown = "none" if field.default is None else field.default
    return f" [default: {str(shown).lower() if isinstance(shown, bool) else shown}]"
