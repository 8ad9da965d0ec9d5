"""Public keys as people copy them: 52 letters and digits that no shell and no flag takes for anything else.

ZeroMQ's own text of a key (Z85) has &, <, *, ! and more, and may begin with a dash.
"""

from __future__ import annotations

import base64
from typing import Final

from zmq.utils import z85

from common.transport.address import TransportError

LENGTH: Final = 52  # 32 bytes, five bits each
_PADDING: Final = "===="


def key_text(key: str) -> str:
    """The public `key` (Z85) as it is shown."""
    return base64.b32encode(z85.decode(key)).decode("ascii").rstrip("=").lower()


def key_of(text: str) -> str:
    """The public key (Z85) that `text` shows, in capitals or not. Raises `TransportError` if it shows none."""
    try:
        raw = base64.b32decode(text.upper() + _PADDING) if len(text) == LENGTH else b""
        key = z85.encode(raw).decode("ascii") if raw else ""
    except ValueError:
        key = ""
    if not key or key_text(key) != text.lower():  # the last letter says more than is left to say
        raise TransportError(
            f"That is not a public key; it must be the {LENGTH} letters and digits that `dragon keys show` prints."
        )
    return key
