"""`dragon service`: have the system run a daemon, from now on and again whenever it fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from device.cli.failures import bad_input
from device.cli.settings import Role
from proto.messages import Side

if TYPE_CHECKING:
    from device.cli.service.plan import Service


class Manager(Protocol):
    """A service manager; the modules `systemd` and `launchd` are such."""

    def path(self, role: Side, /) -> Path: ...

    def text(self, service: Service, sandbox: bool, /) -> str: ...

    def install(self, role: Side, start: bool, /) -> list[str]: ...

    def uninstall(self, role: Side, /) -> None: ...

    def status(self, role: Side, /) -> tuple[bool, list[str]]: ...


app = typer.Typer(help="A daemon that the system starts and watches.", rich_markup_mode=None, no_args_is_help=False)

NoStart = Annotated[bool, typer.Option("--no-start", help="Write the unit, and say what starts it")]
NoSandbox = Annotated[
    bool, typer.Option("--no-sandbox", help="Linux: leave out what needs user namespaces, where there are none")
]


@app.command("install")
def install(role: Role = "device", no_start: NoStart = False, no_sandbox: NoSandbox = False) -> None:
    """Have the system run the daemon.

    With its settings, now and whenever you log in.
    """
    from device.cli.service.plan import planned

    manager = _manager()
    service = planned(role)
    path = manager.path(role)
    try:
        for folder in (*service.folders, *([service.hub] if service.downloads else [])):
            # What is not there when the daemon starts, it could not write to. What is there may be others', too.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(manager.text(service, not no_sandbox))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise bad_input(f"{error.filename or path}: can't be written: {reason}") from None
    print(f"written: {path}")
    print("\n".join(manager.install(role, not no_start)))


@app.command("uninstall")
def uninstall(role: Role = "device") -> None:
    """Stop the service and remove it.

    Settings and data stay.
    """
    manager = _manager()
    path = manager.path(role)
    if not path.exists():
        raise bad_input(f"there is no {path}: the {role} daemon is no service of yours")
    manager.uninstall(role)
    print(f"removed: {path}; settings and data stay")


@app.command("status")
def status(role: Role = "device") -> None:
    """Show whether the service runs.

    Exit code 1 if it does not.
    """
    runs, lines = _manager().status(role)
    print("\n".join(lines))
    raise typer.Exit(0 if runs else 1)


@app.command("show")
def show(role: Role = "device", no_sandbox: NoSandbox = False) -> None:
    """Print what `install` would write."""
    from device.cli.service.plan import planned

    print(_manager().text(planned(role), not no_sandbox), end="")


def _manager() -> Manager:
    """The service manager of this machine. Raises `CommandFailed` where none is known."""
    from device.cli.service import launchd, systemd

    if sys.platform == "win32":
        raise bad_input(
            "services are for Linux with systemd and for macOS; on Windows have the Task Scheduler run `dragon device`"
            " at log-on"
        )
    return launchd if sys.platform == "darwin" else systemd
