"""Two network namespaces, one for each daemon, joined by an emulated link and by nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from types import TracebackType
from typing import TYPE_CHECKING

from scripts.netlab.helper import LabFailed
from scripts.netlab.links import ADDRESSES, SIDES, Kind, Link, NetemLink, TunLink, netem_available
from scripts.netlab.namespaces import Namespace, Unavailable
from scripts.netlab.self_check import Check, measure
from scripts.netlab.setting import LinkSetting
from scripts.netlab.trace import Trace
from scripts.netlab.watchdog import start_watchdog

if TYPE_CHECKING:
    from proto.fields import Side

PROBES = 50


class NetLab:
    """The lab is open inside the context; then everything in it is ended and gone, even after a kill -9.

    `kind` is what to emulate the link with; None takes netem where the kernel has it, and the user-space link
    elsewhere. `seed` draws the user-space link's jitter and losses. Entering raises `Unavailable` where the machine
    doesn't permit a lab. One thread drives it; any thread may `run_in` it.
    """

    def __init__(self, setting: LinkSetting | None = None, kind: Kind | None = None, seed: int = 0) -> None:
        self._setting = setting or LinkSetting()
        self._wanted = kind
        self._seed = seed
        self._resources = ExitStack()
        self._namespaces: dict[Side, Namespace] = {}
        self._link: Link | None = None
        self._kind: Kind = "user-space link"
        self._replay: _Replay | None = None

    def __enter__(self) -> NetLab:
        with ExitStack() as resources:
            for side in SIDES:
                self._namespaces[side] = resources.enter_context(closing(Namespace()))
            resources.enter_context(closing(start_watchdog(self._namespaces.values())))
            self._kind = self._choose()
            link = _join(self._kind, self._namespaces, self._seed)
            resources.enter_context(closing(link))
            link.set(self._setting)
            self._link = link
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop_replay()
        finally:
            self._link = None
            self._namespaces = {}
            self._resources.close()

    @property
    def kind(self) -> Kind:
        """The emulator of the link; known once the lab is open."""
        return self._kind

    @property
    def setting(self) -> LinkSetting:
        """The setting in force, set by hand or by a trace."""
        return self._setting

    def address(self, side: Side) -> str:
        """The IP address of that side's end of the link; the other side reaches it under it."""
        return ADDRESSES[side]

    def run_in(self, side: Side) -> AbstractContextManager[None]:
        """Inside, the calling thread is in that side's namespace: sockets, processes and threads that it makes there
        belong to it (and sockets stay so). Raises `LabFailed` when the lab is closed."""
        if side not in self._namespaces:
            raise LabFailed("The network lab is not open.")
        return self._namespaces[side].entered()

    def set(self, setting: LinkSetting) -> None:
        """Apply `setting` to packets sent from now on, not to those under way. Ends a replay. Raises `LabFailed`."""
        self.stop_replay()
        self._apply(setting)

    def replay(self, trace: Trace) -> None:
        """Follow `trace` in the background from now on, instead of any other; its last setting stays."""
        self.stop_replay()
        self._replay = _Replay(self, trace)

    def stop_replay(self) -> None:
        """Stay where the trace is now. Raises `LabFailed` if it could not be followed."""
        replay, self._replay = self._replay, None
        if replay is not None:
            replay.stop()

    def check(self, probes: int = PROBES) -> Check:
        """Measure round trips and both rates with real sockets. The setting must not change meanwhile."""
        with ExitStack() as sockets:
            ends: dict[Side, socket.socket] = {}
            for side in SIDES:
                with self.run_in(side):
                    ends[side] = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                ends[side].bind((self.address(side), 0))
            ends["device"].connect(ends["cloud"].getsockname())
            ends["cloud"].connect(ends["device"].getsockname())
            return measure(ends["device"], ends["cloud"], self._setting, probes)

    def _apply(self, setting: LinkSetting) -> None:
        if self._link is None:
            raise LabFailed("The network lab is not open.")
        self._link.set(setting)
        self._setting = setting

    def _choose(self) -> Kind:
        if self._wanted == "user-space link":
            return self._wanted
        if netem_available(self._namespaces["device"]):
            return "netem"
        if self._wanted == "netem":
            raise Unavailable("This kernel has no sch_netem, or `tc` is not installed; leave the kind of link open.")
        return "user-space link"


class _Replay:
    """The thread that follows a trace."""

    def __init__(self, lab: NetLab, trace: Trace) -> None:
        self._lab = lab
        self._stopped = threading.Event()
        self._failure: LabFailed | None = None
        self._thread = threading.Thread(target=self._run, args=(trace,), name="trace replay", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self, trace: Trace) -> None:
        begun = time.monotonic()
        for point in trace:
            if self._stopped.wait(max(0.0, begun + point.seconds - time.monotonic())):
                return
            try:
                self._lab._apply(point.setting)
            except LabFailed as failure:
                self._failure = failure
                return


def _join(kind: Kind, namespaces: Mapping[Side, Namespace], seed: int) -> Link:
    return NetemLink(namespaces) if kind == "netem" else TunLink(namespaces, seed)
