"""`dragon models`: the language models of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from device.cli.failures import bad_input
from device.cli.options import CommandGroup
from device.cli.settings import Role, load_common, load_device

if TYPE_CHECKING:
    from common.daemon.models import Sides

app = typer.Typer(cls=CommandGroup, help="The language models that daemons run.", rich_markup_mode=None)


@app.command("list")
def list_models() -> None:
    """Show the models on this machine, and the settings that name them."""
    from rich.filesize import decimal

    from common.daemon import models as on_models
    from common.library.terminal import say, show_table

    listed = on_models.list_installed_models(_sides())
    if not listed:
        say("no models yet: `dragon models pull NAME` gets one")
    show_table(
        ("name", "size", "numbers", "licence", "tokenizer", "used by", "where"),
        [
            (each.name, decimal(each.size), each.numbers, each.licence, each.tokenizer, each.used, each.state)
            for each in listed
        ],
    )


@app.command("pull")
def pull(model: Annotated[str, typer.Argument(help="Hub id, folder or .gguf file")]) -> None:
    """Get a model for this machine: download, import or link it.

    First prints its size, its licence, and whether it fits. After an interrupted download, run it again: complete files
    are kept. --model takes the name that is printed.
    """
    from common.daemon import models as on_models
    from common.library.terminal import say

    with _one_sentence():
        print(on_models.pull_model(model, _sides(), say))


@app.command("remove")
def remove_models(
    names: Annotated[list[str], typer.Argument(help="Models, as `list` shows them")],
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing")] = False,
) -> None:
    """Remove models. The files and folders that they were made from stay."""
    from rich.filesize import decimal

    from common.daemon import models as on_models
    from common.engine.model import hub

    with _one_sentence():
        sides = _sides()
        models = load_device().models
        chosen = on_models.find_models(names, models)
        if not yes and (sys.stdin is None or not sys.stdin.isatty()):
            raise bad_input("standard input is not a terminal, so dragon can't ask: give --yes")
        for each in chosen:
            used = ", ".join(on_models.used_by(each, sides))
            size = "" if each.kind == "linked" else f" ({decimal(each.size)})"
            print(f"{each.name}{size}{f', which is used as {used}' if used else ''}", file=sys.stderr)
        if not yes and not typer.confirm("Remove?" if len(chosen) == 1 else "Remove all of these?", err=True):
            raise bad_input("nothing was removed")
        hub.delete_models(chosen, models)
        for each in chosen:
            print(f"removed {each.name}")


@app.command("check")
def check_models(
    model: Annotated[
        str | None, typer.Argument(help="Name, folder, .gguf file or Hub id [default: the role's]")
    ] = None,
    role: Role = "device",
) -> None:
    """Load a model, and show its memory, its speed, and whether both sides fit together."""
    settings = load_common(role)
    if model is not None:
        settings = settings.of_model(model)
    other = load_common("cloud" if role == "device" else "device")
    from common.daemon import models as on_models

    with _one_sentence():
        for line in on_models.check_model(settings, other):
            print(line, flush=True)


def _sides() -> Sides:
    return {"device": load_common("device"), "cloud": load_common("cloud")}


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Turns errors about models into one line."""
    try:
        yield
    except ValueError as error:
        raise bad_input(str(error)) from None
