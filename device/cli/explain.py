"""`dragon help`: what a command does, as `--help` behind it says."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(help="A command, e.g. library add")] = None,
) -> None:
    """Explain a command, or list all of them."""
    whole = context.find_root()
    whole.command.main([*(command or []), "--help"], prog_name=whole.info_name, standalone_mode=False)
