"""Changes single settings of a file and keeps everything else, including comments."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

from common.configuration.configuration import ConfigurationError, toml_line
from common.process.files import PRIVATE, replacing


def with_setting(text: str, key: str, value: object) -> str:
    """Sets `key` in a settings file's `text`: changes its line or adds one.

    Raises `ValueError` for text that is not TOML, or an unusual form of the setting.
    """
    before = tomllib.loads(text)
    line = toml_line(key, value)
    if key in before:
        place = re.compile(rf'^[ \t]*{key}[ \t]*=[ \t]*("(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[^\s#"\']+)', re.MULTILINE)
        changed = place.sub(lambda _: line, text, count=1)
    else:
        changed = f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n"
    wanted = before | tomllib.loads(line)
    if tomllib.loads(changed) != wanted:
        raise ValueError(f"the line of {key} is not clear")
    return changed


def set_in_file(path: Path, key: str, value: object) -> bool:
    """Sets `key` in the file at `path`, creating it; False if already set.

    Raises `ConfigurationError`.
    """
    try:
        text = path.read_text("utf-8-sig") if path.exists() else ""
        if tomllib.loads(text) == tomllib.loads(text) | tomllib.loads(toml_line(key, value)):
            return False
        changed = with_setting(text, key, value)
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise ConfigurationError(
            f"{path}: can't be changed ({error}); write `{toml_line(key, value)}` there yourself"
        ) from None
    write_settings(path, changed)
    return True


def settings_text(values: Mapping[str, object]) -> str:
    """A settings file with `values`."""
    return "".join(f"{toml_line(key, value)}\n" for key, value in values.items())


def write_settings(path: Path, text: str) -> None:
    """Replaces a settings file, or a link's target, in one step.

    A new file is private: it may hold keys. Raises `ConfigurationError`.
    """
    place = Path(os.path.realpath(path))
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else PRIVATE
        with replacing(place, mode=mode) as file:
            file.write(text.encode())
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be written: {(error.strerror or str(error)).lower()}") from None
