"""`dragon config`, and a role's settings for the other commands."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.process.python import python_environment
from device.cli.failures import bad_input
from proto.fields import Side

if TYPE_CHECKING:
    from common.configuration.settings import Settings
    from device.settings import DeviceSettings

Role = Annotated[Side, typer.Option("--role", help="Whose: the device's or the cloud's")]
File = Annotated[Path | None, typer.Option("--config", help="Settings file instead of the usual one")]

# The device never imports the cloud's code: a process of its own prints the cloud's settings as TOML.
CLOUD_SETTINGS = """
from cloud.settings import CloudSettings
from common.configuration.configuration import ConfigurationError, describe, load_settings
try:
    print(describe(load_settings(CloudSettings)), end="")
except ConfigurationError as error:
    raise SystemExit(str(error))
"""


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Address and API key of this machine's device daemon."""

    url: str
    api_key: str | None


def config(role: Role = "device", file: File = None) -> None:
    """Show the settings in force and where each comes from."""
    print(_described(role, file), end="")


def load_device(arguments: Sequence[str] = (), file: Path | None = None) -> DeviceSettings:
    """The device's settings with command-line flags on top. Raises `CommandFailed`."""
    from common.configuration.configuration import ConfigurationError, load_settings
    from common.configuration.flags import FlagError, parse_flags
    from device.settings import DeviceSettings

    try:
        named, overrides = parse_flags(DeviceSettings, arguments)
        return load_settings(DeviceSettings, named or file, overrides)
    except (ConfigurationError, FlagError) as error:
        raise bad_input(str(error)) from None


def load_common(role: Side) -> Settings:
    """Settings of `role`, without those that only the cloud has. Raises `CommandFailed`."""
    if role == "device":
        return load_device()
    from common.configuration.settings import Settings

    values, _ = cloud_settings()
    return Settings(**{name: values[name] for name in Settings.model_fields})


def cloud_settings(file: Path | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """All of the cloud's settings by name, as TOML has them, and where each comes from. Raises `CommandFailed`."""
    text = _described("cloud", file)
    lines = [line.rpartition("  # ") for line in text.splitlines()]
    return tomllib.loads(text), {line.partition(" = ")[0]: origin for line, _, origin in lines}


def device_http() -> HttpAddress:
    """The device daemon of this machine, from its settings."""
    settings = load_device()
    key = settings.api_key.get_secret_value() if settings.api_key else None
    return HttpAddress(local_url(settings.host, settings.port), key)


def local_url(host: str, port: int) -> str:
    """Where a device daemon that listens on `host` is reached on this machine."""
    return f"http://{reachable(host)}:{port}"


def reachable(host: str) -> str:
    """The host, as an address has it, at which one that listens on `host`, perhaps everywhere, is reached here."""
    found = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{found}]" if ":" in found else found


def _described(role: Side, file: Path | None) -> str:
    if role == "device":
        from common.configuration.configuration import describe

        return describe(load_device(file=file))
    environment = python_environment() | ({"DRAGON_CONFIG": str(file)} if file is not None else {})
    command = [sys.executable, "-P", "-c", CLOUD_SETTINGS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise bad_input((done.stderr.strip().splitlines() or ["the cloud's settings can't be read"])[-1])
    return done.stdout
