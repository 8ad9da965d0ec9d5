"""`dragon config`, and a role's settings for the other commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device.cli.failures import bad_input
from proto.messages import Side

if TYPE_CHECKING:
    from cloud.settings import CloudSettings
    from common.configuration.settings import Settings
    from device.settings import DeviceSettings

Role = Annotated[Side, typer.Option("--role", help="Role: the device's or the cloud's")]
File = Annotated[Path | None, typer.Option("--config", help="Settings file instead of the usual one")]


def config(role: Role = "device", file: File = None) -> None:
    """Show the settings in force and the origin of each."""
    from common.configuration.configuration import describe

    print(describe(load_device(file=file) if role == "device" else load_cloud(file)), end="")


def load_device(arguments: Sequence[str] = (), file: Path | None = None) -> DeviceSettings:
    """Returns the device's settings, overridden by flags. Raises `CommandFailed`."""
    from common.configuration.configuration import ConfigurationError, keep_caches, load_settings
    from common.configuration.flags import FlagError, parse_flags
    from device.settings import DeviceSettings

    try:
        named, overrides = parse_flags(DeviceSettings, arguments)
        settings = load_settings(DeviceSettings, named or file, overrides)
    except (ConfigurationError, FlagError) as error:
        raise bad_input(str(error)) from None
    keep_caches(settings)
    return settings


def load_cloud(file: Path | None = None) -> CloudSettings:
    """Raises `CommandFailed`."""
    from cloud.settings import CloudSettings
    from common.configuration.configuration import ConfigurationError, load_settings

    try:
        return load_settings(CloudSettings, file)
    except ConfigurationError as error:
        raise bad_input(str(error)) from None


def load_common(role: Side) -> Settings:
    """Returns a role's settings, with its daemon's or worker's threads. Raises `CommandFailed`."""
    if role == "device":
        return load_device()
    from common.configuration.configuration import keep_caches
    from common.process.machine import cores_each

    settings = load_cloud()
    keep_caches(settings)
    if settings.workers and settings.threads is None:
        return settings.model_copy(update={"threads": cores_each(settings.workers, settings.shares_machine)})
    return settings


def local_url(settings: DeviceSettings, port: int | None = None) -> str:
    """Returns the local daemon's URL; `port` overrides the settings."""
    scheme = "http" if settings.tls is None else "https"
    return f"{scheme}://{reachable(settings.host)}:{settings.port if port is None else port}"


def reachable(host: str) -> str:
    """Returns the local address of a listener on `host`, perhaps everywhere."""
    found = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{found}]" if ":" in found else found
