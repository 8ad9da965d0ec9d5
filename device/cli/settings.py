"""`dragon config`, and a role's settings for the other commands."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from common.process.machine import python_environment
from device.cli.failures import bad_input
from proto.messages import Side

if TYPE_CHECKING:
    from common.configuration.settings import Settings
    from device.settings import DeviceSettings

Role = Annotated[Side, typer.Option("--role", help="Whose: the device's or the cloud's")]
File = Annotated[Path | None, typer.Option("--config", help="Settings file instead of the usual one")]

# The device never imports the cloud's code: a process of its own prints the cloud's settings as TOML.
CLOUD_SETTINGS = """
from cloud.daemon import CloudSettings
from common.configuration.configuration import ConfigurationError, describe, load_settings
try:
    print(describe(load_settings(CloudSettings)), end="")
except ConfigurationError as error:
    raise SystemExit(str(error))
"""


def config(role: Role = "device", file: File = None) -> None:
    """Show the settings in force and where each comes from."""
    print(_described(role, file), end="")


def load_device(arguments: Sequence[str] = (), file: Path | None = None) -> DeviceSettings:
    """The device's settings with command-line flags on top. Raises `CommandFailed`."""
    from common.configuration.caches import keep_caches
    from common.configuration.configuration import ConfigurationError, load_settings
    from common.configuration.flags import FlagError, parse_flags
    from device.settings import DeviceSettings

    try:
        named, overrides = parse_flags(DeviceSettings, arguments)
        settings = load_settings(DeviceSettings, named or file, overrides)
    except (ConfigurationError, FlagError) as error:
        raise bad_input(str(error)) from None
    keep_caches(settings)
    return settings


def load_common(role: Side) -> Settings:
    """Settings of `role`, without those that only the cloud has; with the threads that its daemon, or each of its
    workers, computes with. Raises `CommandFailed`.
    """
    if role == "device":
        return load_device()
    from common.configuration.caches import keep_caches
    from common.configuration.settings import Settings, is_loopback, is_unset
    from common.process.machine import cores_each

    values, _ = cloud_settings()
    local = is_loopback(values["bind"])
    if values["workers"] and is_unset(values["threads"]):
        values["threads"] = cores_each(values["workers"], local)

    class OfCloud(Settings):
        role: ClassVar[Literal["cloud"]] = "cloud"

        @property
        def shares_machine(self) -> bool:
            return local

    settings = OfCloud(**{name: values[name] for name in Settings.model_fields})
    keep_caches(settings)
    return settings


def cloud_settings(file: Path | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """All of the cloud's settings by name, as TOML has them, and where each comes from. Raises `CommandFailed`."""
    text = _described("cloud", file)
    lines = [line.rpartition("  # ") for line in text.splitlines()]
    return tomllib.loads(text), {line.partition(" = ")[0]: origin for line, _, origin in lines}


def local_url(settings: DeviceSettings, port: int | None = None) -> str:
    """URL of this machine's device daemon for its own programs; `port`: another one than the settings say."""
    scheme = "http" if settings.tls is None else "https"
    return f"{scheme}://{reachable(settings.host)}:{settings.port if port is None else port}"


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
