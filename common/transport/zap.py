"""Admission of connections: the answering end of ZAP (ZeroMQ RFC 27), with keys and without."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import zmq
from zmq.utils import z85

from common.process.quiet_log import QuietLog
from common.transport.keys import fingerprint

_LOG = logging.getLogger(__name__)
_ADDRESS: Final = "inproc://zeromq.zap.01"
_DOMAIN: Final = b"dragon"
_REFUSALS: Final = (0.1, 3.0)  # that are logged, per second and at once
LATER: Final = 500  # told to who is paused: 300 is meant for that, but libzmq then says nothing and closes nothing
_BATCH: Final = 64  # questions answered before the thread looks at anything else


class ZapAuthenticator:
    """Answers ZeroMQ's question at every handshake, on the link's thread; every doubt is a refusal.

    Must exist before a socket of its context is bound or connected. `allows` says which public keys (Z85) get in;
    None is a plaintext link: whoever gets through to the address does. Such a link asks as well, because libzmq
    refuses the older protocols ZMTP 1 and 2, whose peers have no handshake and no metadata, only where it asks.
    An accepted peer's messages carry its key as User-Id. The holder of a key that is `paused` is to come again later.
    """

    def __init__(
        self, context: zmq.Context[Any], allows: Callable[[str], bool] | None, paused: Callable[[str], bool]
    ) -> None:
        self._allows = allows
        self._paused = paused
        self._lines = QuietLog(_LOG, time.monotonic, *_REFUSALS)
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(_ADDRESS)

    def protect(self, socket: zmq.Socket[Any], secret: bytes | None = None) -> None:
        """Make `socket`, neither bound nor connected yet, ask here; with `secret`, as a CURVE server.

        A CURVE server whose question nobody answers would accept any key, so ZeroMQ itself is told to refuse then.
        """
        if secret is not None:
            socket.curve_server = True
            socket.curve_secretkey = secret
        socket.zap_domain = _DOMAIN
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def answer(self) -> None:
        """Answer what was asked; call when `socket` is readable, and again while it is."""
        with contextlib.suppress(zmq.Again):
            for _ in range(_BATCH):
                request = self.socket.recv_multipart(zmq.DONTWAIT)
                self.socket.send_multipart(self._verdict(request), zmq.DONTWAIT)

    def close(self) -> None:
        self.socket.close(0)

    def _verdict(self, request: Sequence[bytes]) -> list[bytes]:
        # The identity is the asking socket's own, whatever RFC 27 says: libzmq doesn't tell what the peer brought.
        version, sequence, domain, _address, _identity, mechanism, *credentials = [*request, *[b""] * 6][
            : max(6, len(request))
        ]
        user = None
        if (version, domain) == (b"1.0", _DOMAIN):
            user = self._plain(mechanism, credentials) if self._allows is None else self._key(mechanism, credentials)
        if user is None:
            return [b"1.0", sequence, b"400", b"The key is not trusted.", b"", b""]
        if self._paused(user):
            return [b"1.0", sequence, b"%d" % LATER, b"Later.", b"", b""]
        return [b"1.0", sequence, b"200", b"OK", user.encode("ascii"), b""]

    def _plain(self, mechanism: bytes, credentials: Sequence[bytes]) -> str | None:
        return "" if mechanism == b"NULL" and not credentials else None

    def _key(self, mechanism: bytes, credentials: Sequence[bytes]) -> str | None:
        if mechanism != b"CURVE" or [len(each) for each in credentials] != [32] or self._allows is None:
            return None
        key = z85.encode(credentials[0]).decode("ascii")
        try:
            if self._allows(key) is True:
                return key
            refused = "refused a connection: the key with the fingerprint %s is not trusted"
            self._lines.tell(logging.WARNING, refused, fingerprint(key))
            return None
        except Exception as error:  # whatever an allow-list does, the answer is no and the thread lives
            self._lines.tell(logging.ERROR, "the allow-list failed with %s; the peer is refused", type(error).__name__)
            return None
