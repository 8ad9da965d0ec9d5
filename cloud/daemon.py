"""The cloud daemon."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from functools import partial

from cloud.reception import receiving
from cloud.settings import CloudSettings
from common.configuration.settings import is_loopback
from common.daemon.daemon import THREADS_END, allow_descriptors, cloud_keys, serving, stay_alone
from common.daemon.watchdog import Watchdog
from common.engine.model.imports import importing_models
from common.metrics.server import MetricsServer
from common.process.garbage import keep_loaded
from common.process.service_manager import ServiceManager
from common.process.startup import Startup
from common.process.stopping import until_told, within
from common.process.vital import end_process
from common.transport.link import CloudLink

log = logging.getLogger(__name__)

DESCRIPTORS = 4096  # of open files; all peers and strangers that the link allows, and the daemon's own


def run(settings: CloudSettings) -> None:
    """Serve devices until told to stop; a start that fails is one line on stderr and exit code 2. Does not return."""
    with serving("dragon cloud", settings) as (stack, manager):
        _serve(settings, stack, manager)


def _serve(settings: CloudSettings, stack: ExitStack, manager: ServiceManager) -> None:
    """Serve until `Stopped`; the `stack` ends it then: first the devices are told, then the threads end."""
    stay_alone(settings, stack)
    keys = cloud_keys(settings, settings.bind)
    allow_descriptors(DESCRIPTORS)
    scraped = None if settings.metrics is None else stack.enter_context(_metered(settings.metrics))
    if settings.workers:
        from cloud.gateway.daemon import serve_by_workers

        serve_by_workers(settings, keys, stack, manager, scraped)
    startup = Startup(manager.status)
    with receiving(settings, keys, startup, end_process) as address:
        startup.at("importing libraries")
        with importing_models():  # here, as torch takes seconds, and a port that is taken already is told of at once
            from cloud.sessions import Sessions
            from common.daemon.side import SideRuntime
            from common.daemon.ticker import Ticker
            from common.library.snapshots import forget

        forget(settings.library)  # a cloud in a Ray cluster had them
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
    until_told()


def _metered(address: str) -> MetricsServer:
    """A server of scrapes, at an address that is ours from now on. Raises `TransportError`."""
    if not is_loopback(address.rpartition(":")[0]):
        log.warning("metrics on %s are open to everybody who can reach it: they hold counts, no text", address)
    return MetricsServer(address)
