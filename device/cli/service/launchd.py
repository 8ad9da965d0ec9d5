"""Services of launchd, on macOS: agents of a user."""

from __future__ import annotations

import os
import plistlib
import subprocess
import sys
from pathlib import Path

from device.cli.failures import answer_failed
from device.cli.service.plan import Service
from proto.messages import Side


def label(role: Side) -> str:
    """Name of the role's agent."""
    return f"dragon-{role}"


def path(role: Side) -> Path:
    """Path of the role's agent file."""
    return Path.home() / "Library" / "LaunchAgents" / f"{label(role)}.plist"


def log_path(role: Side) -> Path:
    """Path of the agent's log: launchd keeps none by itself."""
    return Path.home() / "Library" / "Logs" / f"{label(role)}.log"


def text(service: Service, sandbox: bool) -> str:
    """The agent, as a property list. There is no `sandbox` for agents."""
    values = {
        "Label": label(service.role),
        "ProgramArguments": list(service.command),
        "EnvironmentVariables": dict(service.environment),
        "RunAtLoad": True,
        # Again after a failure, not after an end in order.
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": 10,
        "Umask": 0o077,
        "HardResourceLimits": {"Core": 0},
        "StandardErrorPath": str(log_path(service.role)),
    }
    return plistlib.dumps(values, sort_keys=False).decode()


def install(role: Side, start: bool) -> list[str]:
    """Load the agent that was written, which starts it. Returns lines for the user. Raises `CommandFailed`."""
    if not start:
        return ["Next:", f"    launchctl bootstrap {_domain()} {path(role)}"]
    _control("bootout", f"{_domain()}/{label(role)}", known=False)
    _control("bootstrap", _domain(), str(path(role)))
    return [f"{label(role)} starts, now and whenever you log in; its log is {log_path(role)}"]


def uninstall(role: Side) -> None:
    """Stop the agent and remove it."""
    _control("bootout", f"{_domain()}/{label(role)}", known=False)
    path(role).unlink(missing_ok=True)


def status(role: Side) -> tuple[bool, list[str]]:
    """The agent's state: True if it runs, and lines for the user."""
    if not path(role).exists():
        return False, [f"{label(role)} is not installed: dragon service install --role {role}"]
    told = [line.strip() for line in _control("print", f"{_domain()}/{label(role)}", known=False).splitlines()]
    lines = [line for line in told if line.startswith(("state =", "pid =", "runs =", "last exit code ="))]
    return "state = running" in lines, [f"{label(role)}: {', '.join(lines) or 'not loaded'}"]


def _domain() -> str:
    if sys.platform == "win32":  # for the type checker: Windows has no such domains
        raise NotImplementedError
    return f"gui/{os.getuid()}"


def _control(*words: str, known: bool = True) -> str:
    """Returns the output of `launchctl`. Raises `CommandFailed` if it fails, unless the agent need not be `known`."""
    done = subprocess.run(["launchctl", *words], capture_output=True, text=True, check=False)
    if done.returncode and known:
        raise answer_failed(f"`launchctl {' '.join(words)}` failed: {' '.join(done.stderr.split())}")
    return done.stdout
