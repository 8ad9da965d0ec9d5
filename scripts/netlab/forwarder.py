"""The user-space link: a process that carries packets between two TUN devices, with delay, jitter, rate and loss."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import sys
import time
from random import Random

from scripts.netlab.helper import Parent
from scripts.netlab.queueing import PACKET, LinkQueue
from scripts.netlab.setting import Direction, LinkSetting

BATCH = 64  # packets read from one device before the other one, and what is due, get their turn
PRIORITY = -15  # as nice values go: the daemons may use every core, the kernel's own emulation would not notice
TIMER_SLACK = 29  # PR_SET_TIMERSLACK of <linux/prctl.h>


class Carrier:
    """Carries the packets of one direction from one TUN device to the other."""

    def __init__(self, direction: Direction, source: int, target: int, seed: str) -> None:
        self.source = source
        self.queue = LinkQueue(LinkSetting().one_way(direction), Random(f"{direction} {seed}"))
        self._direction = direction
        self._target = target

    def set(self, setting: LinkSetting) -> None:
        """Apply the part of a setting that is this direction's."""
        self.queue.setting = setting.one_way(self._direction)

    def take(self) -> None:
        """Read what is there, up to a batch."""
        now = time.monotonic()
        for _ in range(BATCH):
            try:
                packet = os.read(self.source, 2 * PACKET)
            except BlockingIOError:
                return
            self.queue.offer(now, packet)

    def give(self) -> None:
        """Write what is due. What the kernel doesn't take is lost, as on a network."""
        for packet in self.queue.due(time.monotonic()):
            with contextlib.suppress(OSError):
                os.write(self._target, packet)


def forward(parent: Parent, carriers: tuple[Carrier, Carrier]) -> None:
    """Carry packets until the lab closes. Each of its messages is a setting, answered when it holds."""
    watched = [parent.socket.fileno(), parent.process, *(carrier.source for carrier in carriers)]
    while True:
        ready = select.select(watched, [], [], _wait(carriers))[0]
        for carrier in carriers:
            if carrier.source in ready:
                carrier.take()
            carrier.give()
        if parent.socket.fileno() in ready or parent.process in ready:
            message = parent.receive(ready)
            if message is None:
                return
            setting = LinkSetting.unpacked(message)
            for carrier in carriers:
                carrier.set(setting)
            parent.socket.send(message)


def _wait(carriers: tuple[Carrier, Carrier]) -> float | None:
    times = [carrier.queue.next for carrier in carriers]
    known = [moment for moment in times if moment is not None]
    return max(0.0, min(known) - time.monotonic()) if known else None


def _be_punctual() -> None:
    """Keep to time as far as permitted. The garbage of this loop has no cycles, so none is collected."""
    import ctypes

    ctypes.CDLL(None).prctl(TIMER_SLACK, 1, 0, 0, 0)
    gc.disable()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)


def main() -> None:
    parent = Parent(sys.argv[1:], descriptors=2)
    # `select` takes low numbers only, and the lab's process may have many files open.
    device, cloud = map(os.dup, parent.descriptors)
    parent.process = os.dup(parent.process)
    seed = parent.arguments[0]
    _be_punctual()
    forward(parent, (Carrier("uplink", device, cloud, seed), Carrier("downlink", cloud, device, seed)))


if __name__ == "__main__":
    main()
