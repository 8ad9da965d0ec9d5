"""`python -m common.library.add_process`: `dragon library add` for a daemon, which says on stdin what to add."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from common.process.python import wait_passively

NICENESS = 10  # answers come first


def main() -> int:
    """The exit code of `commands.add`. Stdin has the settings and the paths, as JSON."""
    os.nice(NICENESS)
    wait_passively()
    from common.configuration.settings import Settings
    from common.library.commands import add

    task = json.load(sys.stdin)
    settings = Settings(**(task["settings"] | {"threads": 1}))
    return add(settings, [Path(path) for path in task["paths"]])


if __name__ == "__main__":
    sys.exit(main())
