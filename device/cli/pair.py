"""`dragon pair`: introduces two machines by two pasted codes."""

from __future__ import annotations

import re
import shlex
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device.cli.failures import bad_input
from device.cli.keys import print_displaced
from device.cli.settings import File, Role

if TYPE_CHECKING:
    from common.transport.keys import KeyFolder

NAMELESS = "device"  # for invalid machine names

Code = Annotated[list[str] | None, typer.Argument(help="The code that the other machine printed")]
Address = Annotated[
    str | None, typer.Option("--address", help="Cloud: where the device reaches it, e.g. tcp://cloud.example:8601")
]
Name = Annotated[str, typer.Option("--name", help="Name of the device, under which the cloud trusts it")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace an existing key or name")]


def pair(
    code: Code = None,
    address: Address = None,
    name: Name = "",
    replace: Replace = False,
    role: Role = "device",
    file: File = None,
) -> None:
    """Let a device and a cloud trust each other.

    On the cloud `dragon pair --role cloud --address tcp://HOST:PORT` prints a code for the device, where `dragon pair
    CODE` prints one for the cloud. Nothing is sent anywhere.
    """
    from common.configuration.configuration import ConfigurationError
    from common.transport.address import TransportError

    pasted = "".join(code or [])
    try:
        if role == "device":
            _on_device(pasted, address, name, replace, file)
        elif pasted:
            _admit(pasted, name, replace, file)
        else:
            _invite(address, name, file)
    except (ConfigurationError, TransportError) as error:
        raise bad_input(str(error)) from None


def _invite(address: str | None, name: str, file: Path | None) -> None:
    from common.transport.pairing import invitation_code, invite

    if address is None:
        raise bad_input("give the address at which the device reaches this cloud: --address tcp://HOST:PORT")
    folder, bind = _of_cloud(file)
    invitation = invite(folder, address, name)
    _print_fingerprint("this cloud", invitation.key)
    print("\nOn the device, within a day:\n")
    print(f"    dragon pair {invitation_code(invitation)}\n")
    _print_start(address, bind)


def _on_device(code: str, address: str | None, name: str, replace: bool, file: Path | None) -> None:
    from common.configuration.configuration import load_settings, origin_of, settings_path
    from common.configuration.settings_file import set_in_file
    from common.daemon.start import TRUSTED_CLOUD
    from common.transport.keys import KeyFolder, check_name
    from common.transport.pairing import read_invitation, reply_code, trust_cloud
    from device.settings import DeviceSettings

    if not code:
        raise bad_input("paste the code that `dragon pair --role cloud --address tcp://HOST:PORT` prints on the cloud")
    if address is not None:
        raise bad_input("--address is for --role cloud: the code says where the cloud is")
    invitation = read_invitation(code)
    called = name or invitation.name or _own_name()
    check_name(called)
    path = settings_path("device", file)
    # Refusals precede changes.
    overrides = {"cloud": invitation.address}
    settings = load_settings(DeviceSettings, file, overrides, missing_ok=True)
    folder = KeyFolder(settings.keys, "device")
    folder.check_trust(TRUSTED_CLOUD, invitation.key, replace)
    displaced = folder.displaced(TRUSTED_CLOUD, invitation.key)
    written = set_in_file(path, "cloud", invitation.address)
    reply = trust_cloud(folder, invitation, TRUSTED_CLOUD, replace)
    print_displaced(displaced, TRUSTED_CLOUD)
    _print_fingerprint("cloud", invitation.key)
    _print_fingerprint("this device", reply.key)
    print(f"address     {invitation.address}, {'written to' if written else 'as it is in'} {path}")
    in_force = load_settings(DeviceSettings, file)
    if in_force.cloud != invitation.address:
        print(f"but {origin_of(in_force, 'cloud')} says {in_force.cloud or 'none'} and has precedence: remove it")
    if in_force.privacy == "offline":
        print(f"but privacy is offline ({origin_of(in_force, 'privacy')}): no cloud takes part until that is changed")
    print("\nOn the cloud, then compare both fingerprints there:\n")
    print(f"    dragon pair --role cloud {reply_code(reply)} --name {called}\n")
    print("Then start this device: dragon device")


def _admit(code: str, name: str, replace: bool, file: Path | None) -> None:
    from common.transport.pairing import read_reply, trust_device

    reply = read_reply(code)
    folder, _ = _of_cloud(file)
    before = folder.trusted()
    peer = trust_device(folder, reply, name, replace)
    print_displaced([each for each in before if (each.name == peer.name) != (each.key == peer.key)], peer.name)
    _print_fingerprint("this cloud", folder.own().public)
    _print_fingerprint(peer.name, peer.key)
    print(f"{peer.name} is trusted from its next attempt on.")


def _of_cloud(file: Path | None) -> tuple[KeyFolder, str]:
    from common.transport.keys import KeyFolder
    from device.cli.settings import load_cloud

    settings = load_cloud(file)
    return KeyFolder(settings.keys, "cloud"), settings.bind


def _print_start(address: str, bind: str) -> None:
    """Prints the command for the address that the device uses."""
    from common.transport.address import is_local_address, split_address

    port = split_address(address)[1]
    hidden = is_local_address(bind) and not is_local_address(address)
    if hidden or split_address(bind)[1] != port:
        where = f"{'tcp://0.0.0.0' if hidden else bind.rpartition(':')[0]}:{port}"
        print(f"Start this cloud with: dragon cloud --bind {shlex.quote(where)}")
    else:
        print("Start this cloud with: dragon cloud")


def _print_fingerprint(whose: str, key: str) -> None:
    from common.transport.keys import fingerprint

    print(f"{whose:<11} {fingerprint(key)}")


def _own_name() -> str:
    own = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname().partition(".")[0])
    return own.strip("-_")[:64] or NAMELESS
