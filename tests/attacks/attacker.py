"""A process that attacks a link when told to: `python -m tests.attacks.attacker KIND ADDRESS [PUBLIC SECRET CLOUD
[HELLO]]`. `HELLO`, a frame in hexadecimal digits, is what kinds begin with that open answers.

Lines on stdin: `go`, `stop` (answered with how often it struck so far), end of input to end. Only loopback, bounded
in what it opens.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import zmq

from common.methods.drafted.payloads import LatticeEntries, encode_lattice
from proto.framing import LARGEST_PAYLOAD, decode, encode
from proto.messages import MOST_UNITS, Busy, Error, Message, Open, Propose, Welcome
from tests.common.transport.support import RawPeer, draft, port_of
from tests.common.transport.test_front_door import STRANGERS

Keys = tuple[bytes, bytes, bytes]  # public, secret, the cloud's public
JUNK = (b"", b"\x93", b"\xc1" * 50, b"\x92\xcd\xff\xff\x02", b"\xdd\xff\xff\xff\xff", b"x" * 2000)
BEAT = 0.01  # seconds between two strikes
MOST_CONNECTIONS = 10_000
PIECE = 2**14  # bytes of a frame of the message without an end, each a strike
FINEST = 1024  # units of a lattice
OPENING = Open(
    1, "qsv", "?", "?", 1, 1, 1.0, "rejection", "race", 32, True, 1.0, "cloud", "cloud", 1, 64,
    options='{"resolution": 1024, "draft_length": 4}',
)  # fmt: skip


def dealer(
    context: zmq.Context[zmq.Socket[bytes]], address: str, keys: Keys | None, name: bytes = b""
) -> zmq.Socket[bytes]:
    made = context.socket(zmq.DEALER)
    made.linger = 0
    made.sndhwm = 10_000
    if name:
        made.routing_id = name
    if keys is not None:
        made.curve_publickey, made.curve_secretkey, made.curve_serverkey = keys
    made.connect(address)
    return made


def strangers(address: str, keys: Keys | None) -> Iterator[int]:
    """Ten connections per strike that speak anything but ZMTP 3."""
    while True:
        for data in (*STRANGERS.values(), random.randbytes(100), random.randbytes(5000)):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port_of(address)), 5) as each:
                each.sendall(data)
        yield len(STRANGERS) + 2


def malformed(address: str, keys: Keys | None) -> Iterator[int]:
    """1,000 frames per second that are no message, of one connection that was let in."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    peer = dealer(context, address, keys)
    while True:
        for index in range(10):
            with contextlib.suppress(zmq.Again):
                peer.send(JUNK[index % len(JUNK)], zmq.DONTWAIT)
        yield 10


def names(address: str, keys: Keys | None) -> Iterator[int]:
    """Connections that claim the names of others, sent a message each and closed."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    number = 0x6B8B4567  # where libzmq begins to count
    while True:
        number += 1
        peer = dealer(context, address, keys, b"\0" + struct.pack(">I", number % 2**32))
        with contextlib.suppress(zmq.Again):  # refused between `connect` and here, it has nowhere to send, for ever
            peer.send(encode(draft(1)), zmq.DONTWAIT)
        peer.poll(100)
        peer.close(0)
        yield 1


def connections(address: str, keys: Keys | None) -> Iterator[int]:
    """10,000 connections that say nothing, 100 per strike, kept open."""
    held: list[socket.socket] = []
    while True:
        for _ in range(100):
            if len(held) < MOST_CONNECTIONS:
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", port_of(address)), 5))
        yield 100 if len(held) < MOST_CONNECTIONS else 0


def endless(address: str, keys: Keys | None) -> Iterator[int]:
    """A message without an end; when the connection is cut, another one."""
    while True:
        with contextlib.suppress(OSError, AssertionError):
            peer = RawPeer(address)
            with contextlib.closing(peer.connection):
                while True:
                    peer.send(bytes(PIECE), more=True)
                    yield 1


def giant(address: str, keys: Keys | None) -> Iterator[int]:
    """Frames that claim more than a link allows, up to all that 64 bits can say. Strikes are the connections that this
    cost, for the link does not count what ZeroMQ cuts.
    """
    while True:
        cut = 0
        for size in (2**20, 2**31, 2**40, 2**63 - 1, 2**64 - 1):
            with contextlib.suppress(OSError, AssertionError):
                peer = RawPeer(address)
                with contextlib.closing(peer.connection):
                    peer.connection.sendall(struct.pack(">BQ", RawPeer.LARGE, size) + bytes(1000))
                    cut += peer.closed_by_peer()
        yield cut


def slow(address: str, keys: Keys | None) -> Iterator[int]:
    """A peer that asks for 60 kB a hundred times per second and reads nothing."""
    peer = RawPeer(address)
    peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    frame = peer.frame(encode(draft(1, bytes(60_000))))
    while True:
        try:
            peer.connection.sendall(frame)
        except OSError:
            with contextlib.suppress(OSError, AssertionError):
                peer = RawPeer(address)
        yield 1


def lattices(address: str, keys: Keys | None, hello: bytes) -> Iterator[int]:
    """1,000 proposals per second, each of a few kilobytes that take long to read, for answers of which more are opened
    when these end.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    peer = dealer(context, address, keys)
    peer.send(hello)
    vocabulary = next(each for each in heard(peer) if isinstance(each, Welcome)).hello.vocabulary
    tokens = np.arange(0, vocabulary, vocabulary // FINEST, dtype=np.uint32)[:FINEST]
    each = LatticeEntries(tokens, np.ones(FINEST, np.uint32)), 0
    payload = encode_lattice([each] * (MOST_UNITS // FINEST), "short", vocabulary)
    session, proposals = 0, 0
    while True:
        for answer in heard(peer, 0):
            if isinstance(answer, Busy | Error) and answer.session == session:
                session += 1
                proposals = 0
        if not proposals:
            session = session or 1
            with contextlib.suppress(zmq.Again):
                peer.send(encode(replace(OPENING, session=session)), zmq.DONTWAIT)
        for _ in range(10):
            proposals += 1
            with contextlib.suppress(zmq.Again):
                peer.send(encode(Propose(session, proposals, 0, (1,), (), (), payload)), zmq.DONTWAIT)
        yield 10


def heard(peer: zmq.Socket[bytes], patience: int | None = None) -> Iterator[Message]:
    """Messages that come, until none does for so many milliseconds."""
    while peer.poll(patience):
        yield decode(peer.recv(), LARGEST_PAYLOAD)


KINDS: dict[str, Callable[[str, Keys | None], Iterator[int]]] = {
    each.__name__: each for each in (strangers, malformed, names, connections, endless, giant, slow)
}


def main(kind: str, address: str, *keys: str) -> None:
    public, secret, cloud = (each.encode() for each in keys[:3]) if keys else (b"", b"", b"")
    told = (public, secret, cloud) if keys else None
    strikes = lattices(address, told, bytes.fromhex(keys[3])) if kind == "lattices" else KINDS[kind](address, told)
    count, going = 0, False
    print("ready", flush=True)
    while True:
        if select.select([sys.stdin], [], [], BEAT if going else None)[0]:
            order = sys.stdin.readline().strip()
            if not order:
                return
            going = order == "go"
            print(count, flush=True)
        if going:
            begun = time.monotonic()
            while time.monotonic() - begun < BEAT / 2:
                count += next(strikes)
                if kind != "endless":
                    break


if __name__ == "__main__":
    main(*sys.argv[1:])
