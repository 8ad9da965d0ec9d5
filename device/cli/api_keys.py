"""`dragon api-keys`: access to the device daemon's HTTP interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device.cli.failures import bad_input
from device.cli.settings import File

if TYPE_CHECKING:
    from device.access.api_keys import ApiKeyFiles
    from device.settings import DeviceSettings

app = typer.Typer(
    help="API keys for programs and pages that use HTTP.",
    rich_markup_mode=None,
    no_args_is_help=False,
)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Name of the key, e.g. laptop")],
    page: Annotated[bool, typer.Option("--page", help="Print the page's address with the key instead")] = False,
    file: File = None,
) -> None:
    """Make a key and print it once.

    Only its hash is stored. A running daemon accepts it immediately.
    """
    with _opened(file) as (settings, files):
        address = _page(settings) if page else ""
        first = not files.all()
        key = files.create(name)
    print(f"{address}/#key={key}" if page else key)
    if first:
        typer.echo(
            "From now on the daemon asks everybody for a key, except this user's commands on this machine.", err=True
        )


@app.command("list")
def list_keys(file: File = None) -> None:
    """Show the keys' names, and when they were made."""
    with _opened(file) as (_, files):
        keys = files.all()
    width = max((len(key.name) for key in keys), default=0)
    for key in keys:
        print(f"{key.name:<{width}}  created {key.created}")
    if not keys:
        typer.echo("There are no API keys; `dragon api-keys create NAME` makes one.", err=True)


@app.command("revoke")
def revoke_api_key(name: Annotated[str, typer.Argument(help="The key's name")], file: File = None) -> None:
    """Forget a key.

    A daemon that runs refuses it from the next request on.
    """
    with _opened(file) as (_, files):
        files.revoke(name)
        left = files.all()
    print(f"revoked {name}")
    if not left:
        typer.echo("It was the last key. A running daemon refuses everybody else until it is restarted.", err=True)


@contextmanager
def _opened(file: Path | None) -> Iterator[tuple[DeviceSettings, ApiKeyFiles]]:
    from device.access.api_keys import ApiKeyError, ApiKeyFiles
    from device.cli.settings import load_device

    settings = load_device(file=file)
    try:
        yield settings, ApiKeyFiles(settings.keys)
    except ApiKeyError as error:
        raise bad_input(str(error)) from None


def _page(settings: DeviceSettings) -> str:
    """The page's address. Uses a name in the certificate, as browsers compare it."""
    from device.cli.settings import local_url

    if settings.tls is None:
        return local_url(settings)
    from device.access.tls import TlsError, read_certificate

    try:
        names = read_certificate(settings.tls.certificate).names
    except TlsError as error:
        raise bad_input(str(error)) from None
    fitting = [f"[{name}]" if ":" in name else name for name in names if "*" not in name]
    return f"https://{fitting[0]}:{settings.port}" if fitting else local_url(settings)
