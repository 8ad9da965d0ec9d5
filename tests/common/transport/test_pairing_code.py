"""Pairing codes: what they say comes back, and whatever is wrong with one is told in a sentence."""

from __future__ import annotations

import base64
import hashlib

import pytest
import zmq
from zmq.utils import z85

from common.transport.address import TransportError
from common.transport.pairing import Invitation, Reply, invitation_code, proof, read_invitation, read_reply, reply_code

KEY = z85.encode(bytes(range(32))).decode()
INVITATION = Invitation("tcp://cloud.example:8601", KEY, bytes(range(16)), "laptop")
REPLY = Reply(KEY, bytes(range(16)))


@pytest.mark.parametrize("address", ["tcp://10.0.0.7:1", "tcp://[fe80::1%eth0]:65535", f"tcp://{'x' * 60}.example:80"])
@pytest.mark.parametrize("name", ["", "laptop", "x" * 64])
def test_an_invitation_comes_back(address: str, name: str) -> None:
    invitation = Invitation(address, KEY, bytes(16), name)
    code = invitation_code(invitation)
    assert read_invitation(code) == invitation
    assert read_invitation(f" {code[:40]}\n{code[40:].upper()} ") == invitation
    assert code.isalnum() is False and code.replace("_", "").isalnum() and code.islower()


def test_a_reply_comes_back() -> None:
    assert read_reply(reply_code(REPLY)) == REPLY


@pytest.mark.parametrize("kind", ["invitation", "reply"])
def test_every_wrong_character_is_noticed(kind: str) -> None:
    code, read = (
        (invitation_code(INVITATION), read_invitation) if kind == "invitation" else (reply_code(REPLY), read_reply)
    )
    begin = code.index("_") + 1
    for place in range(begin, len(code) - 1):
        for other in "a7":
            if code[place] != other:
                with pytest.raises(TransportError, match=r"^The code is damaged: .*\.$"):
                    read(code[:place] + other + code[place + 1 :])


def test_what_is_cut_short_says_so() -> None:
    code = invitation_code(INVITATION)
    for length in range(code.index("_") + 1, len(code)):
        with pytest.raises(TransportError, match="incomplete or has extra characters"):
            read_invitation(code[:length])
    with pytest.raises(TransportError, match="incomplete or has extra characters"):
        read_invitation(f"{code}--role")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (reply_code(REPLY), "This is the code that `dragon pair CODE` prints on the device"),
        (invitation_code(INVITATION).replace("invite1", "invite2"), "The code has version 2"),
        ("invite2_not!even£base32", "The code has version 2"),
        ("a7" * 26, "This is not a pairing code"),
        ("", "This is not a pairing code"),
        (invitation_code(INVITATION)[1:], "This is not a pairing code"),
        ("invite1_9", "damaged"),
        ("invite1_a9", "damaged"),
        ("invite1_ééé9", "damaged"),
    ],
)
def test_what_is_another_thing_is_called_by_its_name(code: str, text: str) -> None:
    with pytest.raises(TransportError, match=text) as refused:
        read_invitation(code)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


def test_an_invitation_is_no_reply() -> None:
    with pytest.raises(TransportError, match="prints on the cloud; here you need"):
        read_reply(invitation_code(INVITATION))


def made(rest: bytes) -> str:
    """An invitation with a right tag whose part behind the key is `rest`."""
    content = z85.decode(KEY) + rest
    tag = hashlib.sha256(b"invite1" + content).digest()[:4]
    return f"invite1_{base64.b32encode(tag + content).decode().rstrip('=').lower()}9"


def test_the_made_one_is_right_otherwise() -> None:
    assert read_invitation(made(bytes(16) + b"\x0etcp://cloud:80")).address == "tcp://cloud:80"


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        (b"", "damaged"),
        (bytes(16), "damaged"),
        (bytes(16) + b"\x20tcp://cloud:80", "damaged"),
        (bytes(16) + b"\x02\xff\xff", "damaged"),
        (bytes(16) + b"\x0etcp://cloud:8x", "not understood"),
        (bytes(16) + b"\x0dtcp://cloud:0", "not understood"),
        (bytes(16) + b"\x10tcp://cl\x1b[oud:80", "not understood"),
        (bytes(16) + b"\x10tcp://0.0.0.0:80", "where a cloud listens"),
        (bytes(16) + b"\x0etcp://cloud:80../x", "is not a valid name"),
    ],
)
def test_a_code_that_no_cloud_made_is_refused(rest: bytes, text: str) -> None:
    with pytest.raises(TransportError, match=text):
        read_invitation(made(rest))


def test_the_proof_is_of_both_keys_and_the_secret() -> None:
    cloud, device, other = (zmq.curve_keypair()[0].decode() for _ in range(3))
    right = proof(bytes(16), cloud, device)
    assert right not in (proof(b"\1" * 16, cloud, device), proof(bytes(16), other, device))
    assert right not in (proof(bytes(16), cloud, other), proof(bytes(16), device, cloud))


def test_secrets_are_not_shown() -> None:
    assert repr(INVITATION.secret) not in repr(INVITATION)
    assert repr(REPLY.proof) not in repr(REPLY)
