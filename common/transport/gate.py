"""Who may connect to a CURVE server: the answering end of ZAP (ZeroMQ RFC 27)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import zmq
from zmq.utils import z85

_LOG = logging.getLogger(__name__)
_ADDRESS: Final = "inproc://zeromq.zap.01"
_DOMAIN: Final = b"dragon"


class Gate:
    """Answers ZeroMQ's question at every handshake, on the link's thread; every doubt is a refusal.

    Must exist before the server binds. A server without a gate would accept any key, so `guard` also makes
    ZeroMQ itself refuse everybody when nobody answers. An accepted peer's messages carry its key as User-Id.
    """

    def __init__(self, context: zmq.Context[Any], allows: Callable[[str], bool]) -> None:
        self._allows = allows
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(_ADDRESS)

    def guard(self, server: zmq.Socket[Any], secret: bytes) -> None:
        """Make `server`, not yet bound, a CURVE server that asks this gate."""
        server.curve_server = True
        server.curve_secretkey = secret
        server.zap_domain = _DOMAIN
        server.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def answer(self) -> None:
        """Answer what was asked; call when `socket` is readable."""
        with contextlib.suppress(zmq.Again):
            while True:
                request = self.socket.recv_multipart(zmq.DONTWAIT)
                self.socket.send_multipart(self._verdict(request), zmq.DONTWAIT)

    def close(self) -> None:
        self.socket.close(0)

    def _verdict(self, request: Sequence[bytes]) -> list[bytes]:
        version, sequence, domain, _address, _identity, mechanism, *credentials = [*request, *[b""] * 7][:7]
        [public] = credentials
        key = z85.encode(public).decode("ascii") if len(request) == 7 and len(public) == 32 else ""
        try:
            allowed = (
                (version, domain, mechanism) == (b"1.0", _DOMAIN, b"CURVE") and bool(key) and self._allows(key) is True
            )
        except Exception as error:  # whatever an allow-list does, the answer is no and the thread lives
            _LOG.error("The allow-list failed with %s; the peer is refused.", type(error).__name__)
            allowed = False
        if allowed:
            return [b"1.0", sequence, b"200", b"OK", key.encode("ascii"), b""]
        return [b"1.0", sequence, b"400", b"The key is not trusted.", b"", b""]
