"""Other Python processes of this installation."""

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
