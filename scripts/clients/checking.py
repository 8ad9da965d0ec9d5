"""Options and checks that the client scripts have in common."""

from __future__ import annotations

import sys

# The daemon's address, a question, and the answer that it gives to a plain request.
url, question, expected = sys.argv[1:]


def same(what: str, given: object, expected: object) -> None:
    """End with exit code 1 where a client gives something else."""
    if given != expected:
        sys.exit(f"{what}: {given!r} instead of {expected!r}")
    print(f"  {what}")
