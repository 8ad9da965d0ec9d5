"""The cloud daemon."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from cloud.settings import CloudSettings
from common.answer.request import starting_message
from common.configuration.settings import is_loopback
from common.daemon.start import THREADS_END, Ticker, Watchdog, allow_descriptors, cloud_keys, serving, stay_alone
from common.engine.model.imports import importing_models
from common.process.lifetime import ServiceManager, Startup, wait_until_stopped, within
from common.process.machine import keep_loaded
from common.process.threads import Died, end_process
from common.transport.cloud_link import CloudLink
from common.transport.keys import CloudKeys
from common.transport.sending import LinkToDevices, Peer
from proto.errors import ProtocolError
from proto.messages import Hello, Message

if TYPE_CHECKING:
    from common.metrics.server import MetricsServer

# --- reception
# Receives devices while the cloud starts.

PERIOD: Final = 1.0  # seconds between messages to a device


class Reception:
    """Handler of a starting cloud's link: reports progress to devices that say hello."""

    def __init__(self, startup: Startup) -> None:
        self.link: LinkToDevices | None = None  # set before the link starts to deliver
        self._startup = startup
        self._waiting: dict[Peer, str] = {}  # the latest report per device
        self._lock = threading.Lock()
        self._next = 0.0  # time of the next reports

    def on_connected(self, peer: Peer) -> None:
        pass

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        if isinstance(message, Hello):
            with self._lock:
                self._tell(peer, str(self._startup))

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        pass

    def on_gone(self, peer: Peer) -> None:
        with self._lock:
            self._waiting.pop(peer, None)

    def tick(self, now: float) -> bool:
        """Reports changes to waiting devices. Returns whether there are any."""
        if now >= self._next:
            self._next, doing = now + PERIOD, str(self._startup)
            with self._lock:
                for peer, told in list(self._waiting.items()):
                    if told != doing:
                        self._tell(peer, doing)
        return bool(self._waiting)

    def _tell(self, peer: Peer, doing: str) -> None:
        self._waiting[peer] = doing
        if self.link is not None:
            self.link.send(peer, starting_message(doing))


@contextmanager
def receiving(settings: CloudSettings, keys: CloudKeys | None, startup: Startup, died: Died) -> Iterator[str]:
    """Listens during the block, and reports the progress of `startup` to devices.

    Yields the address, which stays reserved. Devices reconnect after the block. Raises `TransportError` for an
    unusable address.
    """
    reception = Reception(startup)
    ticker = Ticker(reception.tick, died)
    link = CloudLink(settings.bind, keys, reception, insecure=settings.insecure, died=died)
    reception.link = link
    with link:
        ticker.start()
        try:
            yield link.address
        finally:
            ticker.close()


# --- daemon

log = logging.getLogger(__name__)

DESCRIPTORS = 4096  # open files: all peers and strangers of the link, and the daemon's own


def run_cloud(settings: CloudSettings) -> None:
    """Serves until told to stop. Does not return.

    A failed start is a line on stderr and exit code 2.
    """
    with serving("dragon cloud", settings) as (stack, manager):
        _serve(settings, stack, manager)


def _serve(settings: CloudSettings, stack: ExitStack, manager: ServiceManager) -> None:
    """The `stack` ends serving: it informs devices, then ends the threads."""
    stay_alone(settings, stack)
    keys = cloud_keys(settings, settings.bind)
    allow_descriptors(DESCRIPTORS)
    scraped = None if settings.metrics is None else stack.enter_context(_metered(settings.metrics))
    if settings.workers:
        from cloud.gateway.fleet import serve_by_workers

        serve_by_workers(settings, keys, stack, manager, scraped)
    startup = Startup(manager.status)
    with receiving(settings, keys, startup, end_process) as address:
        startup.at("importing libraries")
        with importing_models():  # importing torch takes seconds; a taken port is reported before
            from cloud.sessions import Sessions
            from common.daemon.side import SideRuntime
            from common.daemon.start import Ticker
            from common.library.snapshots import forget

        forget(settings.library)  # of an earlier cloud in a Ray cluster
        side = SideRuntime("cloud", settings, end_process, startup=startup)
    stack.callback(partial(within, THREADS_END, side.close))
    sessions = Sessions(settings, side, process=True)
    ticker = Ticker(sessions.tick, end_process)
    link = CloudLink(address, keys, sessions, side.link_limits, insecure=settings.insecure, died=end_process)
    sessions.link, sessions.metrics.link = link, link.counters
    keep_loaded()
    stack.enter_context(link)
    ticker.start()
    stack.callback(ticker.close)
    stack.callback(sessions.close)
    if scraped is not None:
        scraped.serve(sessions.metrics.text)
    startup.over(settings.last_start(settings.role))
    manager.ready(f"serving devices on {link.address}")
    stack.enter_context(Watchdog(manager, side.threads | {"link": link.ask}, end_process))
    log.info("cloud ready on %s with %d chunks", link.address, side.library.count)
    side.measure_when_idle()
    wait_until_stopped()


def _metered(address: str) -> MetricsServer:
    """Reserves the metrics server's address. Raises `TransportError`."""
    from common.metrics.server import MetricsServer

    if not is_loopback(address.rpartition(":")[0]):
        log.warning("metrics on %s are open to everybody who can reach it: they have counts and no text", address)
    return MetricsServer(address)
