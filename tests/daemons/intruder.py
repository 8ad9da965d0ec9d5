"""A peer that a cloud was told to trust, and should not have been."""

from __future__ import annotations

from pathlib import Path

from common.transport.keys import KeyFolder
from scripts.daemons import exchange_keys


def let_in(data: Path) -> tuple[str, str, str]:
    """Exchange keys between the daemons of `data`, and have the cloud trust a third pair.

    Its public and secret key, and the cloud's public key. A key of its own, because rates are counted per key.
    """
    exchange_keys(data)
    intruder, cloud = KeyFolder(data / "intruder"), KeyFolder(data / "cloud" / "keys")
    own = intruder.own_or_new()
    cloud.trust("intruder", own.public)
    return own.public, own.secret, cloud.own().public
