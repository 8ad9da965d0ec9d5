"""A daemon's settings: a frozen, validated object from defaults, file, environment and flags.

It refuses a user's own folder as a library: daemons make a library's folder private and overwrite files there.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import platformdirs
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource

from common.configuration.settings import MODEL_SETTINGS, Settings, absolute, default_data_dir, is_unset
from common.process.files import expanded

# --- folders
# Distinguishes a library's folder from others, and places the caches of dependencies.

_PACKAGES: Final = Path(__file__).resolve().parents[2]
# Every library folder has one of these from its first use; related files have the same prefixes.
_OF_A_LIBRARY: Final = ("library.sqlite", "writer.lock")
_CACHES: Final = frozenset({"index.faiss", "index.faiss.new", "snapshots"})  # other programs have such an index too
_OF_A_DISK: Final = frozenset({"lost+found", "System Volume Information", "$RECYCLE.BIN", "@eaDir", "#recycle"})


def why_not_library(library: Path) -> str | None:
    """Reason why `library` is some other folder; None if a library may use it."""
    names: set[str] = set()
    with suppress(OSError):  # missing, or an error that opening it reports
        names = {name for name in os.listdir(library) if not name.startswith(".")} - _OF_A_DISK
    if names <= _CACHES or any(name.startswith(_OF_A_LIBRARY) for name in names):
        return None
    return (
        "this folder has other files and no library; name an empty or new folder, and add documents with `dragon "
        "library add FOLDER`"
    )


def keep_caches(settings: Settings) -> None:
    """Makes this process and its children keep caches in the data folder.

    Call it before the imports of the libraries. Numba's compiled loops stay with a writable package. Hub models are
    shared with other programs unless a data folder was chosen; the Hub login always is. Variables already set take
    precedence.
    """
    chosen = settings.data_dir != default_data_dir()
    if chosen or not os.access(_PACKAGES, os.W_OK):
        os.environ.setdefault("NUMBA_CACHE_DIR", str(settings.caches / "numba"))
    if chosen:
        if "HF_HOME" not in os.environ:
            usual = Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache"))
            os.environ.setdefault("HF_TOKEN_PATH", str(usual / "huggingface" / "token"))
        os.environ.setdefault("HF_HOME", str(settings.caches / "huggingface"))
        os.environ.setdefault("MPLCONFIGDIR", str(settings.caches / "matplotlib"))


# --- configuration

CONFIG_VARIABLE = "DRAGON_CONFIG"
DATA_VARIABLE = "DRAGON_DATA_DIR"  # the setting data_dir of both roles
DEFAULT = "default"  # origin of an unset setting


class ConfigurationError(ValueError):
    """The settings are invalid; the one-line text names the setting and its origin."""


S = TypeVar("S", bound=Settings)


def load_settings(
    kind: type[S], file: Path | None = None, overrides: Mapping[str, object] | None = None, missing_ok: bool = False
) -> S:
    """Loads a role's settings from file, environment variables and `overrides`, in rising priority.

    The file is `file`, else `$DRAGON_CONFIG`, else an existing `dragon/<role>.toml` in the platform's configuration
    folder. `$DRAGON_DATA_DIR` is `data_dir` of both roles. Folders in the file are relative to it. Overrides of None
    and empty folder variables are ignored. With `missing_ok`, a missing named file is empty. Raises
    `ConfigurationError`, also for a library folder with other content.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    path = settings_path(kind.role, file)
    for key, value in _read(path, missing_ok=missing_ok or _named(file) is None).items():
        values[key], origins[key] = _relative_to(path.parent, kind, key, value), str(path)
    _check_variables(kind)
    if folder := os.environ.get(DATA_VARIABLE):
        values["data_dir"], origins["data_dir"] = folder, f"${DATA_VARIABLE}"
    for key, value in EnvSettingsSource(kind)().items():
        if value or kind.model_fields[key].annotation is not Path:
            values[key], origins[key] = value, f"${_prefix(kind)}{key.upper()}"
    for key, value in (overrides or {}).items():
        if value is not None:
            values[key], origins[key] = value, f"--{key.replace('_', '-')}"
    try:
        settings = kind(**values)
    except ValidationError as error:
        wrong = _explained(error, kind, origins)
        if file is None and _named(file) is not None and str(path) in wrong:
            wrong += f" (${CONFIG_VARIABLE} names this file for both roles)"
        raise ConfigurationError(wrong) from None
    if reason := why_not_library(settings.library):
        raise ConfigurationError(_refused("library", str(settings.library), reason, origins))
    settings._origins = origins
    return settings


def describe(settings: Settings) -> str:
    """The effective settings as a TOML file, each with its origin."""
    lines = []
    for key in type(settings).model_fields:
        value = getattr(settings, key)
        origin = origin_of(settings, key)
        lines.append(f"{toml_line(key, value)}  # {origin}")
    return "\n".join(lines) + "\n"


def settings_path(role: str, given: Path | None = None) -> Path:
    """Path of a role's settings file, existing or not: `given`, else as in `load_settings`."""
    named = _named(given)
    return platformdirs.user_config_path("dragon") / f"{role}.toml" if named is None else absolute(named)


def origin_of(settings: Settings, key: str) -> str:
    """Source of the setting `key`: a file, `$VARIABLE`, `--flag`, or `default`."""
    return settings._origins.get(key, DEFAULT)


def _named(given: Path | None) -> Path | None:
    return given or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)


def _read(path: Path, missing_ok: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))  # some editors prefix a byte order mark
    except OSError as error:
        if missing_ok and isinstance(error, FileNotFoundError | NotADirectoryError):
            return {}
        raise ConfigurationError(f"{path}: can't be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: is not TOML: {error}") from None


def _relative_to(folder: Path, kind: type[Settings], key: str, value: object) -> object:
    """Resolves folders, files, and models like `./x`, relative to their settings file."""
    field = kind.model_fields.get(key)
    if field is None or not isinstance(value, str):
        return value
    named_folder = Path in (field.annotation, *get_args(field.annotation)) and not is_unset(value)
    named_model = key in MODEL_SETTINGS and value.startswith(("./", "../"))
    return str(folder / expanded(value)) if named_folder or named_model else value


def _prefix(kind: type[Settings]) -> str:
    return str(kind.model_config["env_prefix"])


def _check_variables(kind: type[Settings]) -> None:
    prefix = _prefix(kind)
    for name in sorted(os.environ):
        key = name.upper().removeprefix(prefix).lower()
        if name.upper().startswith(prefix) and key not in kind.model_fields:
            raise ConfigurationError(f"${name}: {_unknown(key, kind)}")


def _explained(error: ValidationError, kind: type[Settings], origins: Mapping[str, str]) -> str:
    # A default computed from a wrong value fails too; only the wrong value is reported.
    details = [item for item in error.errors() if item["type"] != "default_factory_not_called"]
    return "; ".join(_sentence(item, kind, origins) for item in details)


def _sentence(detail: ErrorDetails, kind: type[Settings], origins: Mapping[str, str]) -> str:
    message = " ".join(detail["msg"].removeprefix("Value error, ").split())
    if not detail["loc"]:
        return message
    key = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        return f"{origins.get(key, DEFAULT)}: {_unknown(key, kind)}"
    return _refused(key, detail["input"], f"{message[:1].lower()}{message[1:]}", origins)


def _refused(key: str, value: object, reason: str, origins: Mapping[str, str]) -> str:
    given = json.dumps(value, default=str, ensure_ascii=False)
    return f"{origins.get(key, DEFAULT)}: {key} = {given}: {reason}"


def _unknown(key: str, kind: type[Settings]) -> str:
    close = difflib.get_close_matches(key, kind.model_fields, n=1)
    return f"there is no setting {key!r}" + (f", did you mean {close[0]!r}?" if close else "")


def toml_line(key: str, value: object) -> str:
    """Line of a settings file for `key`."""
    return f"{key} = {_toml(value)}"


def _toml(value: object) -> str:
    match value:
        case None:
            return '"none"'
        case bool() | int() | float():
            return json.dumps(value)
        case _:
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
