"""The standard streams of a process, of which whoever started it may have closed some (`>&-`)."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Have those that are closed lead nowhere, for this process and its children.

    Else the next file that is opened, a database for example, gets the number of the closed one, and with it what a
    library prints. Before anything else is opened.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is the stream's
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))
