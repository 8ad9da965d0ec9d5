"""CURVE keys on disk: this machine's own pair, and one file per trusted peer.

    <folder>/own.json             {"public": ..., "secret": ...}                readable by the owner only
    <folder>/trusted/<id>.json    {"name": ..., "key": ..., "fingerprint": ...}

`<id>` is the fingerprint without dashes, so a handshake opens exactly one file. The folder is the allow-list:
changes apply from the next handshake, and any read error means "not trusted".
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import re
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import zmq
from zmq.utils import z85

from common.process.files import replacing
from common.process.threads import QuietLog
from common.transport.address import TransportError
from proto.messages import Side

ADD_DEVICE = "`dragon pair --role cloud` adds one"

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OWN = "own.json"
_TRUSTED = "trusted"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair in Z85, 40 characters each."""

    public: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        public, secret = zmq.curve_keypair()
        return cls(public.decode("ascii"), secret.decode("ascii"))


@dataclass(frozen=True, slots=True)
class TrustedPeer:
    """A public key that may connect or be connected to."""

    name: str
    key: str

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)


@dataclass(frozen=True, slots=True)
class DeviceKeys:
    """A device's own pair and the cloud's public key (Z85).

    `local`: the folder of keys that this machine's daemons made, else None.
    """

    own: KeyPair
    cloud: str
    local: Path | None = None


def nobody(key: str) -> bool:
    """Refuses every key: the default allow-list."""
    return False


@dataclass(frozen=True, slots=True)
class CloudKeys:
    """A cloud's own pair, and its allow-list of public keys (Z85) per handshake."""

    own: KeyPair
    allows: Callable[[str], bool] = nobody


class KeyFolder:
    """Keys of this machine's `role`. Methods raise `TransportError`, a sentence for the user."""

    def __init__(self, path: Path, role: Side = "device", remedy: str | None = None) -> None:
        self.path = path
        self._role = role
        self._remedy = remedy or f"`dragon keys new --replace --role {role}` makes another"

    def new(self, replace: bool = False) -> KeyPair:
        """Makes this machine's pair. Peers must trust the new one."""
        if not replace and self._own.exists():
            raise TransportError(f"There is a key in {self._own} already; pass --replace to make a new one.")
        pair = KeyPair.new()
        write_private(self._own, {"public": pair.public, "secret": pair.secret})
        return pair

    def own_or_new(self) -> KeyPair:
        """Returns this machine's pair, made if missing, one for all concurrent callers."""
        if not self._own.exists():
            pair = KeyPair.new()
            write_private(self._own, {"public": pair.public, "secret": pair.secret}, replace=False)
        return self.own()

    def complete(self, peer: str | None = None) -> bool:
        """Whether there are a pair and a trusted peer (`peer`, if given)."""
        trusted = [each for each in self.trusted() if peer in (None, each.name)]
        return self.has_pair and bool(trusted)

    @property
    def has_pair(self) -> bool:
        return self._own.exists()

    def own(self) -> KeyPair:
        """Returns this machine's pair. Refuses one that other users can read."""
        try:
            mode = self._own.stat().st_mode
            stored = json.loads(self._own.read_text("utf-8"))
            pair = KeyPair(stored["public"], stored["secret"])
            agrees = zmq.curve_public(z85_key(pair.secret)).decode("ascii") == pair.public
        except FileNotFoundError:
            raise TransportError(
                f"There is no key in {self.path}; make one with `dragon keys new --role {self._role}`."
            ) from None
        except (OSError, ValueError, KeyError, TypeError, TransportError):
            agrees = False
        if not agrees:
            raise TransportError(f"The key in {self._own} can't be read; {self._remedy}.")
        if mode & 0o077:
            raise TransportError(f"Others can read the secret key in {self._own}; run `chmod 600 {self._own}`.")
        return pair

    def trust(self, name: str, key: str, replace: bool = False) -> TrustedPeer:
        """Trusts `key` (Z85) as `name`: letters, digits, dots, dashes and underscores.

        Names and keys are unique. A conflicting entry raises, or is replaced with `replace`.
        """
        self.check_trust(name, key, replace)
        peer = TrustedPeer(name, key)
        former = [each for each in self.trusted() if each.name == name and each.key != key]
        write_private(self._file(key), {"name": name, "key": key, "fingerprint": peer.fingerprint})
        for each in former:
            self._file(each.key).unlink(missing_ok=True)
        return peer

    def check_trust(self, name: str, key: str, replace: bool = False) -> None:
        """Raises the errors of `trust` without changing anything."""
        check_name(name)
        z85_key(key)
        for peer in () if replace else self.displaced(name, key):
            if peer.name == name:
                raise TransportError(
                    f"Another key is trusted as {name} ({peer.fingerprint}); pass --replace to trust this one instead."
                )
            raise TransportError(f"This key is trusted as {peer.name} already; pass --replace to rename it {name}.")

    def displaced(self, name: str, key: str) -> tuple[TrustedPeer, ...]:
        """Returns the peers that `trust` would rename (same key) or forget (same name)."""
        return tuple(peer for peer in self.trusted() if (peer.name == name) != (peer.key == key))

    def named(self, name: str) -> tuple[TrustedPeer, ...]:
        return tuple(peer for peer in self.trusted() if name in (peer.name, peer.fingerprint))

    def revoke(self, name: str) -> tuple[TrustedPeer, ...]:
        """Stops trusting a peer, by name or fingerprint, from its next handshake."""
        found = self.named(name)
        if not found:
            raise TransportError(
                f"No key is trusted as {name}; `dragon keys show --role {self._role}` lists the trusted ones."
            )
        for peer in found:
            self._file(peer.key).unlink(missing_ok=True)
        return found

    def trusted(self) -> tuple[TrustedPeer, ...]:
        """Returns the trusted peers by name, without unreadable and renamed files."""
        peers = []
        for path in (self.path / _TRUSTED).glob("*.json"):
            peer = _read_peer(path)
            if peer is not None and self._file(peer.key) == path:
                peers.append(peer)
        return tuple(sorted(peers, key=lambda peer: (peer.name, peer.key)))

    def allows(self, key: str) -> bool:
        """Whether `key` is trusted now. Any doubt means no."""
        peer = _read_peer(self._file(key))
        return peer is not None and peer.key == key

    def cloud_keys(self) -> CloudKeys:
        """Returns a cloud's keys that accept only trusted peers. Warns if there is none."""
        lines = QuietLog(_LOG)

        def tell_where_nobody_is_trusted() -> None:
            if not self.trusted():
                lines.tell(logging.WARNING, "no device is trusted, so no device can connect; %s", ADD_DEVICE)

        def allows(key: str) -> bool:
            if self.allows(key):
                return True
            tell_where_nobody_is_trusted()
            return False

        own = self.own()
        tell_where_nobody_is_trusted()
        return CloudKeys(own, allows)

    def device_keys(self, cloud: str = "cloud") -> DeviceKeys:
        for peer in self.trusted():
            if peer.name == cloud:
                return DeviceKeys(self.own(), peer.key)
        raise TransportError(
            f"The cloud's key is not known; run `dragon pair CODE`, or `dragon keys trust {cloud} KEY`."
        )

    @property
    def _own(self) -> Path:
        return self.path / _OWN

    def _file(self, key: str) -> Path:
        return self.path / _TRUSTED / f"{fingerprint(key).replace('-', '')}.json"


def check_name(name: str) -> None:
    """Raises `TransportError` for an invalid peer name."""
    if not _NAME.fullmatch(name):
        raise TransportError(f"{name!r} is not a valid name; use up to 64 letters, digits, dots and dashes.")


def fingerprint(key: str) -> str:
    """Returns eight groups of four hexadecimal digits (SHA-256)."""
    digest = hashlib.sha256(key.encode("utf-8")).hexdigest()[:32]
    return "-".join(digest[start : start + 4] for start in range(0, 32, 4))


def z85_key(key: str) -> bytes:
    """Returns `key` as bytes. Raises `TransportError` unless it is 32 bytes in Z85."""
    try:
        # Re-encoding refuses five characters above 32 bits.
        canonical = len(key) == 40 and z85.encode(z85.decode(key.encode("ascii"))) == key.encode("ascii")
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        canonical = False
    if not canonical:
        raise TransportError("That is not a CURVE key of 40 characters (Z85).")
    return key.encode("ascii")


def _read_peer(path: Path) -> TrustedPeer | None:
    try:
        stored = json.loads(path.read_text("utf-8"))
        peer = TrustedPeer(stored["name"], stored["key"])
        z85_key(peer.key)
        if _NAME.fullmatch(peer.name) and stored["fingerprint"] == peer.fingerprint:
            return peer
    except (OSError, ValueError, KeyError, TypeError, TransportError):
        pass
    return None


def write_private(path: Path, content: Mapping[str, object], replace: bool = True) -> None:
    """Writes JSON to `path` atomically, with mode 0600.

    Without `replace`, an existing file stays. Raises `TransportError`.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path, keep=not replace) as file:
            file.write(json.dumps(content).encode())
    except OSError as error:
        raise TransportError(f"Keys can't be written to {path}: {error.strerror}.") from None


# --- key_text
# Public keys for people: 52 letters and digits, safe in shells and flags.
#
# Z85 has characters such as & and < and may begin with a dash.

LENGTH: Final = 52  # 32 bytes, five bits each
_PADDING: Final = "===="


def key_text(key: str) -> str:
    return base64.b32encode(z85.decode(key)).decode("ascii").rstrip("=").lower()


def key_of(text: str) -> str:
    """Returns the public key (Z85) of `text`, in any case. Raises `TransportError`."""
    try:
        raw = base64.b32decode(text.upper() + _PADDING) if len(text) == LENGTH else b""
        key = z85.encode(raw).decode("ascii") if raw else ""
    except ValueError:
        key = ""
    if not key or key_text(key) != text.lower():  # unused bits of the last letter must be zero
        raise TransportError(
            f"That is not a public key; it must be the {LENGTH} letters and digits that `dragon keys show` prints."
        )
    return key


# --- local_keys
# Keys that daemons make by themselves for links within the machine.
#
# All daemons of one user share one pair in a private folder. Other users and web pages have no access.


def local_cloud_keys(folder: Path) -> CloudKeys:
    """Keys of a cloud for the daemons that share `folder`. Raises `TransportError`."""
    pair = local_pair(folder)
    return CloudKeys(pair, lambda key: key == pair.public)


def local_device_keys(folder: Path) -> DeviceKeys:
    """Keys of a device for a cloud that shares `folder`. Raises `TransportError`."""
    pair = local_pair(folder)
    return DeviceKeys(pair, pair.public, folder)


def local_pair(folder: Path) -> KeyPair:
    """Returns the pair in `folder`, made once if missing, even by concurrent processes.

    Raises `TransportError` for a folder that other users can enter or own.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise TransportError(
            f"The keys of this machine's own link can't be saved in {folder} ({(error.strerror or '').lower()}); "
            "set local_keys to a folder of yours."
        ) from None
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        raise TransportError(f"{folder} belongs to another user; set local_keys to a folder of yours.")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise TransportError(f"Others can enter {folder}, where this machine's own keys are; run `chmod 700 {folder}`.")
    return KeyFolder(folder, remedy="delete it, and restart the daemons").own_or_new()
