"""Python processes of this installation: how others are started, and the manners of this one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python_environment() -> dict[str, str]:
    """The environment in which another `python -P` finds the packages that this process runs from.

    With -P: a folder named `cloud` in the working directory must not be taken for the package.
    """
    inherited = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), inherited] if inherited else [str(ROOT)])}


def child_command(module: str, *arguments: str, writes: bool = False) -> list[str]:
    """The command of a child process that runs `module`, for `python_environment`; it ends with this process.

    Unless it `writes` anyway, it writes no bytecode either.
    """
    manners = ["-P"] if writes else ["-P", "-B"]
    return [sys.executable, *manners, "-m", "common.process.child", str(os.getpid()), module, *arguments]


def wait_passively() -> None:
    """Let this process's OpenMP threads sleep when they wait for each other, unless its environment says otherwise.

    They spin by default, also while another program has the core that the last of them needs: two threads on two cores
    with other work embed a twentieth of what they could. Has an effect only before torch and faiss are imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
