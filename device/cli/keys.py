"""`dragon keys`: this machine's key pair and the peers it trusts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from device.cli.failures import bad_input
from device.cli.options import Group
from device.cli.settings import Role
from proto.fields import Side

if TYPE_CHECKING:
    from common.transport.keys import KeyFolder, TrustedPeer

app = typer.Typer(
    cls=Group, help="Keys for links that leave this machine.", rich_markup_mode=None, no_args_is_help=False
)
Name = Annotated[str, typer.Argument(help="A name for the peer, e.g. cloud")]


@app.command("new")
def new(
    replace: Annotated[bool, typer.Option("--replace", help="Replace the key that is there")] = False,
    role: Role = "device",
) -> None:
    """Make this machine's key pair."""
    with _folder(role) as folder:
        pair = folder.new(replace)
        _print_key(pair.public)


@app.command("show")
def show(role: Role = "device") -> None:
    """Print this machine's public key and the trusted peers."""
    from common.transport.key_text import key_text

    with _folder(role) as folder:
        pair = folder.own()
        _print_key(pair.public)
        for peer in folder.trusted():
            print(f"trusted     {peer.name}  {key_text(peer.key)}  {peer.fingerprint}")


@app.command("trust")
def trust(
    name: Name,
    key: Annotated[str, typer.Argument(help="Its public key, 52 letters and digits")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace another key or name that is there")] = False,
    role: Role = "device",
) -> None:
    """Trust a peer's public key. Compare fingerprints over another channel."""
    from common.daemon.daemon import TRUSTED_CLOUD
    from common.transport.key_text import key_of

    with _folder(role) as folder:
        displaced = folder.displaced(name, key_of(key))
        peer = folder.trust(name, key_of(key), replace)
        print_displaced(displaced, name)
        print(f"trusted     {peer.name}  {peer.fingerprint}")
    if role == "device" and name != TRUSTED_CLOUD:
        print(f"but a device talks to the peer {TRUSTED_CLOUD} only; a cloud's keys need --role cloud", file=sys.stderr)


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="The peer's name or fingerprint")], role: Role = "device") -> None:
    """Stop trusting a peer."""
    with _folder(role) as folder:
        for peer in folder.revoke(name):
            print(f"revoked     {peer.name}  {peer.fingerprint}")


def print_displaced(displaced: Sequence[TrustedPeer], name: str) -> None:
    """Say what became of those that were trusted before, now that `name` stands for another key or is a key's name."""
    for peer in displaced:
        if peer.name == name:
            print(f"forgotten   {peer.name}  {peer.fingerprint}")
        else:
            print(f"renamed     {peer.name}, which is {name} now")


@contextmanager
def _folder(role: Side) -> Iterator[KeyFolder]:
    from common.transport.address import TransportError
    from common.transport.keys import KeyFolder
    from device.cli.settings import load_common

    try:
        yield KeyFolder(load_common(role).keys, role)
    except TransportError as error:
        raise bad_input(str(error)) from None


def _print_key(key: str) -> None:
    from common.transport.key_text import key_text
    from common.transport.keys import fingerprint

    print(f"public key  {key_text(key)}")
    print(f"fingerprint {fingerprint(key)}")
