"""The two codes with which people make a device and a cloud known to each other: text to paste, no network.

    invite1_<body>9     of a cloud: its address, its public key, a secret, and the name that it has for the device
    reply1_<body>9      of a device: its public key, and a proof that it had the invitation

The body is base32 in small letters, `tag (4) | key (32) | ...`, and the 9, which base32 has not, shows that nothing is
cut off. The tag is the beginning of the SHA-256 of what it stands before; it tells accidents, not attacks.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import Final, Literal, NoReturn

from zmq.utils import z85

from common.transport.address import TransportError, split_address
from common.transport.keys import check_name

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
    """A cloud's invitation. `key` is its public key (Z85); `name` is empty where it has none for the device."""

    address: str
    key: str
    secret: bytes = field(repr=False)
    name: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A device's reply to the cloud that invited it. `key` is its public key (Z85)."""

    key: str
    proof: bytes = field(repr=False)


def invitation_code(invitation: Invitation) -> str:
    """The code of an invitation. Raises `TransportError` for an address or name that no code has."""
    check_address(invitation.address)
    if invitation.name:
        check_name(invitation.name)
    address = invitation.address.encode()
    rest = invitation.secret + bytes([len(address)]) + address + invitation.name.encode()
    return _code("invite", z85.decode(invitation.key) + rest)


def read_invitation(code: str) -> Invitation:
    """The invitation that `code` is. Raises `TransportError`, one sentence that says what is wrong with it."""
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
    """The code of a reply."""
    return _code("reply", z85.decode(reply.key) + reply.proof)


def read_reply(code: str) -> Reply:
    """The reply that `code` is. Raises `TransportError`, one sentence that says what is wrong with it."""
    content = _content("reply", code)
    if len(content) != _KEY + _PROOF:
        _refuse_damaged("reply")
    return Reply(_key(content), content[_KEY:])


def proof(secret: bytes, cloud: str, device: str) -> bytes:
    """Shows who knows an invitation's `secret` that the public key `device` (Z85) is of one who knew it, too."""
    message = b"dragon pairing 1" + z85.decode(cloud) + z85.decode(device)
    return hmac.digest(secret, message, "sha256")[:_PROOF]


def check_address(address: str) -> None:
    """Raise `TransportError` for what a device can't connect to."""
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
    """The bytes of a code of this kind behind its tag, a key at least."""
    found = _CODE.fullmatch("".join(code.split()).lower())
    if found is None:
        raise TransportError(
            f"That is not a pairing code; it begins with {kind}{VERSION}_ and is what {_MADE_BY[kind]}."
        )
    if found["kind"] != kind:
        other: _Kind = "reply" if kind == "invite" else "invite"
        raise TransportError(
            f"That is the code which {_MADE_BY[other]}; here the one is wanted which {_MADE_BY[kind]}."
        )
    if int(found["version"]) != VERSION:
        raise TransportError(
            f"The code has version {int(found['version'])}, and this dragon reads version {VERSION}; have both machines"
            " run the same release."
        )
    if not found["body"].endswith(_END):
        raise TransportError(
            f"The code is cut short, or has something behind it: its last character is a {_END}; copy what"
            f" {_MADE_BY[kind]}, all of it and no more."
        )
    body = found["body"].removesuffix(_END)
    try:
        raw = base64.b32decode(body.upper() + "=" * (-len(body) % 8)) if _BODY.fullmatch(body) else b""
    except ValueError:
        raw = b""
    content = raw[_TAG:]
    # The last letter may say more than is left to say: so what it stands for is written again.
    if len(content) < _KEY or _code(kind, content) != found[0]:
        _refuse_damaged(kind)
    return content


def _refuse_damaged(kind: _Kind) -> NoReturn:
    raise TransportError(f"The code is damaged: a character of it is wrong; copy anew what {_MADE_BY[kind]}.")


def _key(content: bytes) -> str:
    return z85.encode(content[:_KEY]).decode("ascii")


def _tag(kind: _Kind, content: bytes) -> bytes:
    return hashlib.sha256(f"{kind}{VERSION}".encode() + content).digest()[:_TAG]
