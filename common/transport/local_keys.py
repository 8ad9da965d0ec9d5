"""Keys that daemons make by themselves for a link that does not leave the machine.

All daemons of one user share one pair, in a folder that only this user can read: whoever holds it is this user, and
nobody else on the machine, nor any web page, gets in.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from common.transport.address import TransportError
from common.transport.keys import CloudKeys, DeviceKeys, KeyFolder, KeyPair


def local_cloud_keys(folder: Path) -> CloudKeys:
    """Keys of a cloud that lets the daemons in that share `folder`. Raises `TransportError`."""
    pair = local_pair(folder)
    return CloudKeys(pair, lambda key: key == pair.public)


def local_device_keys(folder: Path) -> DeviceKeys:
    """Keys of a device for a cloud that shares `folder`. Raises `TransportError`."""
    pair = local_pair(folder)
    return DeviceKeys(pair, pair.public, folder)


def local_pair(folder: Path) -> KeyPair:
    """The pair in `folder`, made if there is none; of several processes that make it at once, one does.

    Raises `TransportError` for a folder that others can enter or that belongs to another user.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise TransportError(
            f"The keys of this machine's own link can't be kept in {folder} ({(error.strerror or '').lower()}); "
            "set local_keys to a folder of yours."
        ) from None
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        raise TransportError(f"{folder} belongs to another user; set local_keys to a folder of yours.")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise TransportError(f"Others can enter {folder}, where this machine's own keys are; run `chmod 700 {folder}`.")
    return KeyFolder(folder, remedy="delete it, and start the daemons anew").own_or_new()
