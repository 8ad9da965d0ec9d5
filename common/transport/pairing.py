"""The two codes that introduce a device and a cloud: text to paste, no network.

    invite1_<body>9     from a cloud: its address, public key, a secret, and its name for the device
    reply1_<body>9      from a device: its public key, and a proof that it had the invitation

The body is `tag (4) | key (32) | ...` in lower-case base32. The final 9, not in base32, shows that nothing is cut
off. The tag is the start of the content's SHA-256; it detects accidents, not attacks.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NoReturn

from zmq.utils import z85

from common.transport.address import TransportError, split_address
from common.transport.keys import KeyFolder, TrustedPeer, check_name, write_private

VERSION: Final = 1
SECRET_BYTES: Final = 16
LONGEST_ADDRESS: Final = 255  # bytes

_Kind = Literal["invite", "reply"]
_CODE = re.compile(r"(?P<kind>invite|reply)(?P<version>\d{1,4})_(?P<body>.*)", re.DOTALL)
_BODY = re.compile(r"[a-z2-7]*")
_END = "9"
_TAG, _KEY, _PROOF = 4, 32, 16
_EVERYWHERE = ("0.0.0.0", "::", "*")
_MADE_BY: Final = {
    "invite": "`dragon pair --role cloud --address tcp://HOST:PORT` prints on the cloud",
    "reply": "`dragon pair CODE` prints on the device",
}


@dataclass(frozen=True, slots=True)
class Invitation:
    """A cloud's invitation. `key` is its public key (Z85); `name` may be empty."""

    address: str
    key: str
    secret: bytes = field(repr=False)
    name: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A device's reply to an invitation. `key` is its public key (Z85)."""

    key: str
    proof: bytes = field(repr=False)


def invitation_code(invitation: Invitation) -> str:
    """Raises `TransportError` for an invalid address or name."""
    check_address(invitation.address)
    if invitation.name:
        check_name(invitation.name)
    address = invitation.address.encode()
    rest = invitation.secret + bytes([len(address)]) + address + invitation.name.encode()
    return _code("invite", z85.decode(invitation.key) + rest)


def read_invitation(code: str) -> Invitation:
    """Raises `TransportError`, one sentence for the user."""
    content = _content("invite", code)
    secret, rest = content[_KEY:][:SECRET_BYTES], content[_KEY + SECRET_BYTES :]
    try:
        length = rest[0]
        address, name = rest[1:][:length].decode(), rest[1 + length :].decode()
        if len(rest) <= length:
            _refuse_damaged("invite")
    except (IndexError, UnicodeDecodeError):
        _refuse_damaged("invite")
    check_address(address)
    if name:
        check_name(name)
    return Invitation(address, _key(content), secret, name)


def reply_code(reply: Reply) -> str:
    return _code("reply", z85.decode(reply.key) + reply.proof)


def read_reply(code: str) -> Reply:
    """Raises `TransportError`, one sentence for the user."""
    content = _content("reply", code)
    if len(content) != _KEY + _PROOF:
        _refuse_damaged("reply")
    return Reply(_key(content), content[_KEY:])


def proof(secret: bytes, cloud: str, device: str) -> bytes:
    """Returns a proof that the holder of the public key `device` (Z85) knows `secret`."""
    message = b"dragon pairing 1" + z85.decode(cloud) + z85.decode(device)
    return hmac.digest(secret, message, "sha256")[:_PROOF]


def check_address(address: str) -> None:
    """Raises `TransportError` for an address that devices can't use."""
    host, port = split_address(address)
    if not port or not address.isprintable() or len(address.encode()) > LONGEST_ADDRESS:
        raise TransportError(
            f"The address {address!r} is not understood; write tcp://host:port, for example tcp://cloud.example:8601."
        )
    if host in _EVERYWHERE:
        raise TransportError(
            f"{address} is where a cloud listens; name the address at which the device reaches it, for example"
            f" tcp://cloud.example:{port}."
        )


def _code(kind: _Kind, content: bytes) -> str:
    body = base64.b32encode(_tag(kind, content) + content).decode("ascii").rstrip("=").lower()
    return f"{kind}{VERSION}_{body}{_END}"


def _content(kind: _Kind, code: str) -> bytes:
    """Returns the content after the tag, at least a key long."""
    found = _CODE.fullmatch("".join(code.split()).lower())
    if found is None:
        raise TransportError(f"This is not a pairing code. A code begins with {kind}{VERSION}_; {_MADE_BY[kind]} it.")
    if found["kind"] != kind:
        other: _Kind = "reply" if kind == "invite" else "invite"
        raise TransportError(f"This is the code that {_MADE_BY[other]}; here you need the code that {_MADE_BY[kind]}.")
    if int(found["version"]) != VERSION:
        raise TransportError(
            f"The code has version {int(found['version'])}, and this dragon reads version {VERSION}; have both machines"
            " run the same release."
        )
    if not found["body"].endswith(_END):
        raise TransportError(
            f"The code is incomplete or has extra characters: it must end with {_END}. Copy exactly the code that "
            f"{_MADE_BY[kind]}."
        )
    body = found["body"].removesuffix(_END)
    try:
        raw = base64.b32decode(body.upper() + "=" * (-len(body) % 8)) if _BODY.fullmatch(body) else b""
    except ValueError:
        raw = b""
    content = raw[_TAG:]
    # Re-encoding refuses non-zero unused bits.
    if len(content) < _KEY or _code(kind, content) != found[0]:
        _refuse_damaged(kind)
    return content


def _refuse_damaged(kind: _Kind) -> NoReturn:
    raise TransportError(f"The code is damaged: a character is wrong. Copy again the code that {_MADE_BY[kind]}.")


def _key(content: bytes) -> str:
    return z85.encode(content[:_KEY]).decode("ascii")


def _tag(kind: _Kind, content: bytes) -> bytes:
    return hashlib.sha256(f"{kind}{VERSION}".encode() + content).digest()[:_TAG]


# --- invitations
# A cloud's open invitations in `<keys>/invitations/<id>.json`, readable by the owner only.
#
# A reply proves knowledge of the secret. Each works once, within a day.

LIFE: Final = 24 * 3600.0  # seconds
_FOLDER = "invitations"


@dataclass(frozen=True, slots=True)
class _OpenInvitation:
    path: Path
    secret: bytes = field(repr=False)
    name: str


def invite(folder: KeyFolder, address: str, name: str = "") -> Invitation:
    """Returns a new invitation to the cloud of these keys, made if missing.

    Args:
        address: the cloud's address for devices.
        name: name for the device, if known.

    Raises `TransportError`.
    """
    check_address(address)
    if name:
        check_name(name)
    own = folder.own_or_new()
    _open(folder)  # removes expired ones
    secret = secrets.token_bytes(SECRET_BYTES)
    path = folder.path / _FOLDER / f"{hashlib.sha256(secret).hexdigest()[:32]}.json"
    write_private(path, {"secret": secret.hex(), "name": name, "until": time.time() + LIFE})
    return Invitation(address, own.public, secret, name)


def trust_cloud(folder: KeyFolder, invitation: Invitation, cloud: str, replace: bool = False) -> Reply:
    """Trusts an `invitation`'s key as `cloud`. Returns the device's reply.

    Makes missing keys. Raises `TransportError`.
    """
    folder.check_trust(cloud, invitation.key, replace)
    own = folder.own_or_new()
    folder.trust(cloud, invitation.key, replace)
    return Reply(own.public, proof(invitation.secret, invitation.key, own.public))


def trust_device(folder: KeyFolder, reply: Reply, name: str = "", replace: bool = False) -> TrustedPeer:
    """Trusts the device that sent `reply`, and deletes the invitation.

    The device gets `name`, else the invitation's. A trusted device may reply again. Raises `TransportError`.
    """
    own = folder.own()
    for peer in folder.trusted():
        if peer.key == reply.key and name in ("", peer.name):
            return peer
    for each in _open(folder):
        if hmac.compare_digest(proof(each.secret, own.public, reply.key), reply.proof):
            break
    else:
        raise TransportError(
            "This reply fits no open invitation of this cloud: the invitation was used, is older than a day, or "
            "is another cloud's. Begin again with `dragon pair --role cloud --address tcp://HOST:PORT`."
        )
    if not (chosen := name or each.name):
        raise TransportError("The device needs a name here; add --name, for example --name laptop.")
    peer = folder.trust(chosen, reply.key, replace)
    each.path.unlink(missing_ok=True)
    return peer


def _open(folder: KeyFolder) -> list[_OpenInvitation]:
    """Returns the open invitations, and removes invalid and expired ones."""
    kept = []
    for path in sorted((folder.path / _FOLDER).glob("*.json")):
        try:
            stored = json.loads(path.read_text("utf-8"))
            found = _OpenInvitation(path, bytes.fromhex(stored["secret"]), str(stored["name"]))
            counts = len(found.secret) == SECRET_BYTES and 0 < stored["until"] - time.time() <= LIFE
        except (OSError, ValueError, KeyError, TypeError):
            counts = False
        if counts:
            kept.append(found)
        else:
            path.unlink(missing_ok=True)
    return kept
