"""`dragon profile`: time of a decode step of the configured model on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from device.cli.failures import bad_input
from device.cli.settings import Role, load_common


def profile(
    documents: Annotated[
        list[int] | None, typer.Option("--documents", min=1, max=64, help="Rows of the batch [default: 1 to 16]")
    ] = None,
    context: Annotated[
        list[int] | None, typer.Option("--context", min=1, help="Context length [default: 6 up to 2,048]")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Decode steps at each context length")] = 5,
    png: Annotated[Path | None, typer.Option("--png", help="Plot them into this file")] = None,
    role: Role = "device",
) -> None:
    """Measure how the time of decode steps grows with the context."""
    settings = load_common(role)
    from common.daemon import profile as profile_command
    from common.engine.model.errors import ContextError, ModelError

    try:
        profile_command.run_profile(settings, documents or [], context or [], repeats, png)
    except (ModelError, ContextError, ValueError) as error:
        raise bad_input(str(error)) from None
    except OSError as error:
        raise bad_input(f"{error.filename or 'the profile'} can't be written: {error.strerror or error}") from None
