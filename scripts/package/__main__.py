"""`dragon`, also as `python -m dragon_runtime`, in an installation."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    """Run `dragon`. The installation's folders are found first; in children by PYTHONPATH (`python_environment`)."""
    found = find_spec("dragon_runtime.common")
    if found is None or found.origin is None:
        raise SystemExit("dragon: the installation is damaged (dragon_runtime.common is missing); install it again")
    # First, because other distributions have packages of these names: proto-plus installs `proto`.
    sys.path.insert(0, str(Path(found.origin).parents[1]))

    from device.cli.main import main as dragon

    dragon()


if __name__ == "__main__":
    main()
