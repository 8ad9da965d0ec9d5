"""A cloud's invitations that nobody has replied to: `<keys>/invitations/<id>.json`, readable by the owner only.

Each has a secret, which a reply proves to know; it counts once, and for a day.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from common.transport.address import TransportError
from common.transport.keys import KeyFolder, TrustedPeer, check_name, write_private
from common.transport.pairing_code import SECRET_BYTES, Invitation, Reply, check_address, proof

LIFE: Final = 24 * 3600.0  # seconds
_FOLDER = "invitations"


@dataclass(frozen=True, slots=True)
class _Open:
    """An invitation that waits for a reply."""

    path: Path
    secret: bytes = field(repr=False)
    name: str


def invite(folder: KeyFolder, address: str, name: str = "") -> Invitation:
    """An invitation to the cloud of these keys, which are made if there are none. Raises `TransportError`.

    Args:
        address: where devices reach it.
        name: under which the device will be trusted, if it is known yet.
    """
    check_address(address)
    if name:
        check_name(name)
    own = folder.own_or_new()
    _open(folder)  # forgets those that are too old
    secret = secrets.token_bytes(SECRET_BYTES)
    path = folder.path / _FOLDER / f"{hashlib.sha256(secret).hexdigest()[:32]}.json"
    write_private(path, {"secret": secret.hex(), "name": name, "until": time.time() + LIFE})
    return Invitation(address, own.public, secret, name)


def accept(folder: KeyFolder, invitation: Invitation, cloud: str, replace: bool = False) -> Reply:
    """Trust the key of an `invitation` under the name `cloud`; the device's reply to it. Raises `TransportError`.

    The device's keys are made if there are none.
    """
    folder.check_trust(cloud, invitation.key, replace)
    own = folder.own_or_new()
    folder.trust(cloud, invitation.key, replace)
    return Reply(own.public, proof(invitation.secret, invitation.key, own.public))


def admit(folder: KeyFolder, reply: Reply, name: str = "", replace: bool = False) -> TrustedPeer:
    """Trust the device whose `reply` answers an invitation of this cloud, which is used up then.

    Its name is `name`, else the invitation's. A device that is trusted already may be told again. Raises
    `TransportError`.
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
            "No open invitation of this cloud belongs to that reply: it was used, is older than a day, or is another"
            " cloud's; begin again with `dragon pair --role cloud --address tcp://HOST:PORT`."
        )
    if not (chosen := name or each.name):
        raise TransportError("The device needs a name here; add --name, for example --name laptop.")
    peer = folder.trust(chosen, reply.key, replace)
    each.path.unlink(missing_ok=True)
    return peer


def _open(folder: KeyFolder) -> list[_Open]:
    """The invitations that still count; those that do not are removed."""
    kept = []
    for path in sorted((folder.path / _FOLDER).glob("*.json")):
        try:
            stored = json.loads(path.read_text("utf-8"))
            found = _Open(path, bytes.fromhex(stored["secret"]), str(stored["name"]))
            counts = len(found.secret) == SECRET_BYTES and 0 < stored["until"] - time.time() <= LIFE
        except (OSError, ValueError, KeyError, TypeError):
            counts = False
        if counts:
            kept.append(found)
        else:
            path.unlink(missing_ok=True)
    return kept
