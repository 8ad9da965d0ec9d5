"""The two ways to join the namespaces: the kernel's emulator, or a process between two TUN devices."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol

from scripts.netlab.helper import Helper, LabFailed
from scripts.netlab.namespaces import Namespace, Unavailable
from scripts.netlab.queueing import MOST_BACKLOG, MOST_PACKETS, PACKET
from scripts.netlab.setting import Direction, LinkSetting, OneWay

if TYPE_CHECKING:
    from proto.fields import Side

Kind = Literal["netem", "user-space link"]
SIDES: tuple[Side, Side] = ("device", "cloud")
ADDRESSES: Mapping[Side, str] = {"device": "10.77.0.1", "cloud": "10.77.0.2"}
HARDWARE: Mapping[Side, str] = {"device": "02:00:00:00:00:01", "cloud": "02:00:00:00:00:02"}
OUTWARD: Mapping[Side, Direction] = {"device": "uplink", "cloud": "downlink"}
INTERFACE = "link0"
ETHERNET = 14  # bytes before each IP packet on a virtual Ethernet device

TUNSETIFF = 0x400454CA  # of <linux/if_tun.h>
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
READ_AHEAD = 5000  # packets that wait for the forwarding process; the kernel drops more

UNLIMITED = 12_500_000_000  # bytes per second that netem is told: with a rate it never reorders
LOWEST_LIMIT = 10  # packets


class Link(Protocol):
    """The joint of both namespaces."""

    def set(self, setting: LinkSetting) -> None:
        """Apply `setting`, which holds when this returns. Raises `LabFailed`."""
        ...

    def close(self) -> None: ...


class TunLink:
    """Two TUN devices and the process that carries packets between them. Raises `Unavailable`."""

    def __init__(self, namespaces: Mapping[Side, Namespace], seed: int) -> None:
        devices: list[int] = []
        try:
            for side in SIDES:
                devices.append(_tun(namespaces[side]))
                namespaces[side].configure(
                    [
                        f"link set {INTERFACE} mtu {PACKET} txqueuelen {READ_AHEAD} addrgenmode none up",
                        _address(side),
                    ]
                )
            self._process = Helper("scripts.netlab.forwarder", devices, (str(seed),))
        finally:
            for device in devices:
                os.close(device)

    def set(self, setting: LinkSetting) -> None:
        self._process.ask(setting.packed())

    def close(self) -> None:
        self._process.close()


class NetemLink:
    """A pair of virtual Ethernet devices; each one's queue is sch_netem. Raises `Unavailable`."""

    def __init__(self, namespaces: Mapping[Side, Namespace]) -> None:
        self._namespaces = namespaces
        cloud = namespaces["cloud"].descriptor
        ends = [f"{INTERFACE} address {HARDWARE[side]}" for side in SIDES]
        pair = f"link add {ends[0]} type veth peer name {ends[1]} netns /proc/self/fd/{cloud}"
        namespaces["device"].configure([pair], (cloud,))
        for side, other in zip(SIDES, reversed(SIDES), strict=True):
            namespaces[side].configure(
                [
                    # Losing or delaying a train of segments as one packet is not what a network does.
                    f"link set {INTERFACE} mtu {PACKET} gso_max_segs 1 addrgenmode none up",
                    _address(side),
                    # Nobody has to be asked: a loss of the question would count as one of the first packet.
                    f"neighbour replace {ADDRESSES[other]} lladdr {HARDWARE[other]} dev {INTERFACE} nud permanent",
                ]
            )

    def set(self, setting: LinkSetting) -> None:
        command = ["tc", "qdisc", "replace", "dev", INTERFACE, "root", "netem"]
        for side, direction in OUTWARD.items():
            try:
                self._namespaces[side].run([*command, *netem_options(setting.one_way(direction))])
            except subprocess.CalledProcessError as error:
                raise LabFailed(f"tc refused a setting of the link ({setting}): {error.stderr.strip()}.") from None

    def close(self) -> None:
        """The devices go with their namespaces."""


def netem_available(namespace: Namespace) -> bool:
    """Whether this kernel has sch_netem and this machine has `tc`; tried on the loopback interface in there."""
    try:
        namespace.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "0ms"])
    except (subprocess.CalledProcessError, Unavailable):
        return False
    namespace.run(["tc", "qdisc", "del", "dev", "lo", "root"])
    return True


def netem_options(setting: OneWay) -> list[str]:
    """Arguments of netem; all of them, because what is left out would stay as it was."""
    delay, jitter = (f"{seconds * 1e6:.0f}us" for seconds in (setting.delay, setting.delay * setting.jitter))
    bits = 8 * (UNLIMITED if setting.rate is None else setting.rate)
    limit = MOST_PACKETS
    if setting.rate is not None:  # the same backlog as the user-space link, beside what is under way
        limit = min(limit, max(LOWEST_LIMIT, round(setting.rate * (MOST_BACKLOG + setting.delay) / PACKET)))
    options = ["limit", str(limit), "delay", delay, jitter]
    # The Ethernet header is left out of account: as with the user-space link, IP packets have the rate.
    return [*options, "loss", f"{setting.loss * 100:.6f}%", "rate", f"{bits:.0f}bit", f"-{ETHERNET}"]


def _address(side: Side) -> str:
    other = ADDRESSES["cloud" if side == "device" else "device"]
    return f"address add {ADDRESSES[side]} peer {other} dev {INTERFACE}"


def _tun(namespace: Namespace) -> int:
    """A TUN device in there: its descriptor reads and writes whole IP packets, and never waits."""
    try:
        with namespace.entered():
            descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TUN | IFF_NO_PI))
            except BaseException:
                os.close(descriptor)
                raise
    except OSError as error:
        raise Unavailable(
            f"This kernel has no sch_netem, and /dev/net/tun can't be used ({error.strerror}): "
            "load one of the modules sch_netem and tun, or let this user open the device."
        ) from None
    return descriptor
