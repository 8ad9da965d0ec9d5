"""`dragon models`: the language models of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from device.cli.failures import bad_input
from device.cli.settings import Role, load_common, load_device

app = typer.Typer(help="The language models that daemons run.", rich_markup_mode=None)


@app.command("list")
def list_models() -> None:
    """Show the models that were imported."""
    from common.daemon import models_command

    for line in models_command.list_models(load_device().models):
        print(line)


@app.command("import")
def import_model(file: Annotated[Path, typer.Argument(help="A .gguf file")]) -> None:
    """Import a .gguf file now; a daemon does it at its first start."""
    from common.daemon import models_command
    from common.engine.model.errors import ModelError

    try:
        print(models_command.import_model(file, load_device().models))
    except ModelError as error:
        raise bad_input(str(error)) from None


@app.command("remove")
def remove(names: Annotated[list[str], typer.Argument(help="Models, as `list` shows them")]) -> None:
    """Remove imported models; the files that they came from stay."""
    from common.daemon import models_command
    from common.engine.model.errors import ModelError

    try:
        models_command.remove_models(names, load_device().models)
    except ModelError as error:
        raise bad_input(str(error)) from None


@app.command("check")
def check(
    model: Annotated[str | None, typer.Argument(help="Folder, .gguf file or Hub id [default: the role's]")] = None,
    role: Role = "device",
) -> None:
    """Load a model: what it takes, how fast it is, and whether both sides fit together."""
    settings = load_common(role)
    if model is not None:
        settings = settings.model_copy(update={"model": model, "tokenizer": None})
    other = load_common("cloud" if role == "device" else "device")
    from common.daemon import models_command

    try:
        for line in models_command.check_model(settings, other):
            print(line, flush=True)
    except ValueError as error:  # of the model, its context or the scorer
        raise bad_input(str(error)) from None
