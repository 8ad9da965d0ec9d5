"""Services of systemd: user units, which need no rights but their user's."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from device.cli.failures import answer_failed, bad_input
from device.cli.service.plan import Service
from proto.messages import Side

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


def unit_name(role: Side) -> str:
    """Name of the role's unit."""
    return f"dragon-{role}.service"


def path(role: Side) -> Path:
    """Path of the role's unit file."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "systemd" / "user" / unit_name(role)


def text(service: Service, sandbox: bool) -> str:
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


def install(role: Side, start: bool) -> list[str]:
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


def uninstall(role: Side) -> None:
    """Stop the service and remove its unit. Raises `CommandFailed`."""
    _control("disable", "--now", unit_name(role))
    path(role).unlink(missing_ok=True)
    _control("daemon-reload")


def status(role: Side) -> tuple[bool, list[str]]:
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
        raise answer_failed(f"`{' '.join(command)}` failed: {said}")
    return done.stdout


def _quoted(word: str) -> str:
    """The word as units have it: quoted where it must be, and without specifiers."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")
    return escaped if re.fullmatch(r"[\w@+=:,./%-]+", escaped) else f'"{escaped}"'
