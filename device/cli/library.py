"""`dragon library`: the documents that a side answers from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from common.library.readers.formats import READ
from common.process.machine import wait_passively
from device.cli.failures import bad_input
from device.cli.options import CommandGroup
from device.cli.settings import Role, load_common, load_device

app = typer.Typer(cls=CommandGroup, help="The documents that answers use.", rich_markup_mode=None)


@app.command("add")
def add(
    paths: Annotated[list[Path], typer.Argument(help=f"Folders, or documents: {READ}")],
    rebuild: Annotated[bool, typer.Option("--rebuild", help="First embed the existing documents again")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Let the daemon read changes there from now on")] = False,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="<tag>", help="Give them these tags instead of earlier ones")
    ] = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Remove their tags")] = False,
    encoding: Annotated[
        str | None, typer.Option("--encoding", metavar="<name>", help="Encoding of text files that do not state one")
    ] = None,
    role: Role = "device",
) -> None:
    """Add folders or documents to the library, or read their changes."""
    if tag and no_tags:
        raise bad_input("--tag gives tags and --no-tags takes them away: use one of them")
    wait_passively()
    from common.library import commands

    tags = [] if no_tags else tag or None
    raise typer.Exit(commands.add_documents(load_common(role), paths, rebuild, watch, tags, encoding))


@app.command("list")
def list_documents(role: Role = "device") -> None:
    """Show every document."""
    from common.library import commands

    raise typer.Exit(commands.print_documents(load_common(role)))


@app.command("prefill")
def prefill(role: Role = "device") -> None:
    """Compute the keys and values of every document now, so that first answers start sooner."""
    from common.library import commands

    raise typer.Exit(commands.prefill_library(load_common(role)))


@app.command("remove")
def forget_documents(
    paths: Annotated[list[str] | None, typer.Argument(help="Documents, as `list` shows them, or folders")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every document")] = False,
    role: Role = "device",
) -> None:
    """Remove documents from the library. Their files stay; uploads are deleted."""
    from common.library import commands

    uploads = load_device().uploads if role == "device" else None
    raise typer.Exit(commands.remove_documents(load_common(role), paths or [], everything, uploads))


@app.command("status")
def show_library_status(role: Role = "device") -> None:
    """Show when each folder was read, and which documents could not be read."""
    from common.library import commands

    raise typer.Exit(commands.print_status(load_common(role)))


@app.command("search")
def search(
    query: Annotated[str, typer.Argument(help="Text to look for")],
    count: Annotated[int | None, typer.Option("-k", "--count", help="How many passages")] = None,
    role: Role = "device",
) -> None:
    """Show the passages most similar to a text."""
    from common.library import commands

    raise typer.Exit(commands.search_documents(load_common(role), query, count))
