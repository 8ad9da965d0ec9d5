"""The network lab: daemons of both sides, joined by an emulated link.

The link is the kernel's netem between two network namespaces, one for each side. Where this machine has no netem, or
the user is not root, it is a proxy in user space between two ports of the loopback interface.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from scripts.netlab.faulty_proxy import Direction, FaultyProxy, Line
from scripts.netlab.namespaces import Namespace, Unavailable
from scripts.netlab.setting import LinkSetting, Trace

if TYPE_CHECKING:
    from proto.messages import Side

Kind = Literal["netem", "user-space link"]
SIDES: tuple[Side, Side] = ("device", "cloud")
OUTWARD: Mapping[Side, Direction] = {"device": "up", "cloud": "down"}
LOOPBACK = "127.0.0.1"
NOBODY = 1  # a port that nobody listens on

ADDRESSES: Mapping[Side, str] = {"device": "10.77.0.1", "cloud": "10.77.0.2"}
HARDWARE: Mapping[Side, str] = {"device": "02:00:00:00:00:01", "cloud": "02:00:00:00:00:02"}
INTERFACE = "link0"
PACKET = 1500  # bytes of a full packet, the interfaces' MTU
ETHERNET = 14  # bytes before each IP packet on a virtual Ethernet device
MOST_PACKETS, LOWEST_LIMIT = 20_000, 10  # that wait in one direction
MOST_BACKLOG = 1.0  # seconds of waiting for the rate; routers drop what does not fit into their buffer, too
UNLIMITED = 12_500_000_000  # bytes per second that netem is told: with a rate it never reorders


class NetLab:
    """The lab is open inside the context, where one thread drives it and any thread may `run_in` it.

    `kind` is the emulator of the link; None takes netem where it works, else the user-space link. `seed` draws the
    user-space link's jitter and losses. Entering raises `Unavailable` where `kind` is netem and there is none.
    """

    def __init__(self, setting: LinkSetting | None = None, kind: Kind | None = None, seed: int = 0) -> None:
        self._setting = setting or LinkSetting()
        self._wanted = kind
        self._seed = seed
        self._resources = ExitStack()
        self._namespaces: dict[Side, Namespace] = {}
        self._proxy: FaultyProxy | None = None
        self._replay: threading.Thread | None = None
        self._replayed = threading.Event()  # a replay is to end
        self._failure: Unavailable | None = None  # of a replay

    def __enter__(self) -> NetLab:
        with ExitStack() as resources:
            try:
                if self._wanted != "user-space link":
                    self._namespaces = _joined(resources)
            except Unavailable:
                if self._wanted == "netem":
                    raise
            if not self._namespaces:
                self._proxy = resources.enter_context(FaultyProxy(NOBODY, seed=self._seed))
            self._apply(self._setting)
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop_replay()
        finally:
            self._resources.close()

    @property
    def kind(self) -> Kind:
        """The emulator of the link; known once the lab is open."""
        return "netem" if self._namespaces else "user-space link"

    @property
    def setting(self) -> LinkSetting:
        """The setting in force, set by hand or by a trace."""
        return self._setting

    def run_in(self, side: Side) -> AbstractContextManager[None]:
        """The place of that side: sockets, processes and threads that the calling thread makes inside belong to it."""
        return self._namespaces[side].entered() if self._namespaces else nullcontext()

    def route(self, port: int) -> tuple[str, int]:
        """The host on which the cloud listens at `port`, and the port there that the device connects to."""
        if self._proxy is None:
            return ADDRESSES["cloud"], port
        self._proxy.set_target(port)
        return LOOPBACK, int(self._proxy.address.rpartition(":")[2])

    def set(self, setting: LinkSetting) -> None:
        """Apply `setting` to bytes sent from now on, not to those under way. Ends a replay. Raises `Unavailable`."""
        self.stop_replay()
        self._apply(setting)

    def replay(self, trace: Trace) -> None:
        """Follow `trace` in the background from now on, instead of any other; its last setting stays."""
        self.stop_replay()
        self._replayed.clear()
        self._replay = threading.Thread(target=self._follow, args=(trace,), name="trace replay", daemon=True)
        self._replay.start()

    def stop_replay(self) -> None:
        """Stay where the trace is now. Raises `Unavailable` if it could not be followed."""
        if self._replay is not None:
            self._replayed.set()
            self._replay.join()
        failure, self._failure, self._replay = self._failure, None, None
        if failure is not None:
            raise failure

    def _follow(self, trace: Trace) -> None:
        begun = time.monotonic()
        for seconds, setting in trace:
            if self._replayed.wait(max(0.0, begun + seconds - time.monotonic())):
                return
            try:
                self._apply(setting)
            except Unavailable as failure:
                self._failure = failure
                return

    def _apply(self, setting: LinkSetting) -> None:
        for side, direction in OUTWARD.items():
            if self._proxy is None:
                command = ["tc", "qdisc", "replace", "dev", INTERFACE, "root", "netem"]
                self._namespaces[side].run([*command, *netem_options(setting.line(direction))])
            else:
                self._proxy.set_line(direction, setting.line(direction))
        self._setting = setting


def _joined(resources: ExitStack) -> dict[Side, Namespace]:
    """Two namespaces and a pair of virtual Ethernet devices between them. Raises `Unavailable` without netem."""
    found: dict[Side, Namespace] = {side: resources.enter_context(closing(Namespace())) for side in SIDES}
    for order in (["add", "dev", "lo", "root", "netem", "delay", "0ms"], ["del", "dev", "lo", "root"]):
        found["device"].run(["tc", "qdisc", *order])
    cloud = found["cloud"].descriptor
    device_end, cloud_end = (f"{INTERFACE} address {HARDWARE[side]}" for side in SIDES)
    pair = f"link add {device_end} type veth peer name {cloud_end} netns /proc/self/fd/{cloud}\n"
    found["device"].run(["ip", "-batch", "-"], pair, (cloud,))
    for side, other in zip(SIDES, reversed(SIDES), strict=True):
        lines = [
            "link set lo up",
            # Losing or delaying a train of segments as one packet is not what a network does.
            f"link set {INTERFACE} mtu {PACKET} gso_max_segs 1 addrgenmode none up",
            f"address add {ADDRESSES[side]} peer {ADDRESSES[other]} dev {INTERFACE}",
            # Nobody has to be asked: a loss of the question would count as one of the first packet.
            f"neighbour replace {ADDRESSES[other]} lladdr {HARDWARE[other]} dev {INTERFACE} nud permanent",
        ]
        found[side].run(["ip", "-batch", "-"], "\n".join(lines) + "\n")
    return found


def netem_options(line: Line) -> list[str]:
    """Arguments of netem; all of them, because what is left out would stay as it was."""
    spread = line.jitter / 2
    delay, jitter = (f"{seconds * 1e6:.0f}us" for seconds in (line.delay + spread, spread))
    bits = 8 * (UNLIMITED if line.rate is None else line.rate)
    limit = MOST_PACKETS
    if line.rate is not None:
        limit = min(limit, max(LOWEST_LIMIT, round(line.rate * (MOST_BACKLOG + line.delay + spread) / PACKET)))
    options = ["limit", str(limit), "delay", delay, jitter, "loss", f"{line.loss * 100:.6f}%"]
    # The Ethernet header is left out of account: IP packets have the rate.
    return [*options, "rate", f"{bits:.0f}bit", f"-{ETHERNET}"]
