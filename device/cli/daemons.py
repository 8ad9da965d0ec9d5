"""`dragon device` and `dragon cloud`: start a daemon in the foreground."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

import typer

from common.process.lifetime import present
from common.process.machine import python_environment
from device.cli.settings import load_device


def device(context: typer.Context) -> None:
    """Start the device daemon (flags are its settings)."""
    if {"-h", "--help"} & set(context.args):
        from common.configuration.flags import flags_help
        from device.settings import DeviceSettings

        print(flags_help(DeviceSettings))
        return
    settings = load_device(context.args)
    with ExitStack() as starting:
        starting.enter_context(present(settings.starting))  # before the imports, which take a second
        from device.daemon import run

        run(settings, starting.close)


def cloud(context: typer.Context) -> None:
    """Start the cloud daemon (flags are its settings)."""
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-P", "-m", "cloud", *context.args], python_environment())
