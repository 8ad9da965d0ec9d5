"""Python processes of this installation: the environment of another one, and the manners of this one."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def python_environment() -> dict[str, str]:
    """The environment in which another `python -P` finds the packages that this process runs from.

    With -P: a folder named `cloud` in the working directory must not be taken for the package.
    """
    inherited = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), inherited] if inherited else [str(ROOT)])}


def wait_passively() -> None:
    """Let this process's OpenMP threads sleep when they wait for each other, unless its environment says otherwise.

    They spin by default, also while another program has the core that the last of them needs: two threads on two cores
    with other work embed a twentieth of what they could. Has an effect only before torch and faiss are imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
