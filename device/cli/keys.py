"""`dragon keys`: this machine's key pair and the peers it trusts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from device.cli.failures import bad_input
from device.cli.options import CommandGroup
from device.cli.settings import Role
from proto.messages import Side

if TYPE_CHECKING:
    from common.transport.keys import KeyFolder, TrustedPeer

app = typer.Typer(
    cls=CommandGroup, help="Keys for links that leave this machine.", rich_markup_mode=None, no_args_is_help=False
)
NO_DEVICE = "The cloud no longer trusts any device."
NO_CLOUD = (
    "The device no longer trusts any cloud. At an address of this machine it uses the keys that all daemons of this "
    "user share. At any other address it refuses to start. `dragon pair CODE` adds a cloud."
)
Name = Annotated[str, typer.Argument(help="A name for the peer, e.g. cloud")]


@app.command("new")
def new(
    replace: Annotated[bool, typer.Option("--replace", help="Replace the existing key")] = False,
    role: Role = "device",
) -> None:
    """Make this machine's key pair."""
    with _folder(role) as folder:
        pair = folder.new(replace)
        _print_key(pair.public)


@app.command("show")
def show_keys(role: Role = "device") -> None:
    """Print this machine's public key and the trusted peers."""
    from common.transport.keys import key_text

    with _folder(role) as folder:
        pair = folder.own()
        _print_key(pair.public)
        for peer in folder.trusted():
            print(f"trusted     {peer.name}  {key_text(peer.key)}  {peer.fingerprint}")


@app.command("trust")
def trust(
    name: Name,
    key: Annotated[str, typer.Argument(help="Its public key, 52 letters and digits")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing key or name")] = False,
    role: Role = "device",
) -> None:
    """Trust a peer's public key. Compare fingerprints over another channel."""
    from common.daemon.start import TRUSTED_CLOUD
    from common.transport.keys import key_of

    with _folder(role) as folder:
        displaced = folder.displaced(name, key_of(key))
        peer = folder.trust(name, key_of(key), replace)
        print_displaced(displaced, name)
        print(f"trusted     {peer.name}  {peer.fingerprint}")
    if role == "device" and name != TRUSTED_CLOUD:
        print(f"but a device talks to the peer {TRUSTED_CLOUD} only; a cloud's keys need --role cloud", file=sys.stderr)


@app.command("revoke")
def revoke_peer(
    name: Annotated[str, typer.Argument(help="The peer's name or fingerprint")],
    role: Annotated[
        Side | None, typer.Option("--role", help="Role: the device's or the cloud's; needed if both trust the name")
    ] = None,
) -> None:
    """Stop trusting a peer."""
    from common.daemon.start import TRUSTED_CLOUD

    found = _role_that_trusts(name) if role is None else role
    with _folder(found) as folder:
        for peer in folder.revoke(name):
            print(f"revoked     {peer.name}  {peer.fingerprint}")
        if found == "cloud" and not folder.trusted():
            print(f"{NO_DEVICE} {_without_devices()}", file=sys.stderr)
        if found == "device" and not folder.named(TRUSTED_CLOUD):
            print(NO_CLOUD, file=sys.stderr)


def _role_that_trusts(name: str) -> Side:
    """Raises `CommandFailed` if neither or both roles trust the name or fingerprint."""
    roles: list[Side] = []
    for role in get_args(Side):
        with _folder(role) as folder:
            if folder.named(name):
                roles.append(role)
    match roles:
        case [role]:
            return role
        case []:
            raise bad_input(
                f"No key is trusted as {name}; `dragon keys show` and `dragon keys show --role cloud` list others."
            )
    raise bad_input(
        f"Both the device and the cloud of this machine trust a key as {name}; add --role device or --role cloud."
    )


def _without_devices() -> str:
    from common.configuration.settings import is_loopback
    from device.cli.settings import load_cloud

    settings = load_cloud()
    if settings.curve == "off":
        return "Its link has no keys (curve = 'off'): everybody who reaches it can still connect."
    if is_loopback(settings.bind):
        return (
            "A running cloud now refuses all devices. From its next start on, this user's devices on this machine "
            "can connect with shared keys. `dragon pair --role cloud` adds a device."
        )
    return "The cloud now refuses all devices. `dragon pair --role cloud` adds a device."


def print_displaced(displaced: Sequence[TrustedPeer], name: str) -> None:
    """Reports peers that lost their key or name."""
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
    from common.transport.keys import fingerprint, key_text

    print(f"public key  {key_text(key)}")
    print(f"fingerprint {fingerprint(key)}")
