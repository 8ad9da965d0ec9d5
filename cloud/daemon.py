"""The cloud daemon."""

from __future__ import annotations

import logging

from cloud.sessions import Sessions
from cloud.settings import CloudSettings
from common.runtime.daemon import allow_descriptors, cloud_keys, start_logging, stay_local, until_told_to_stop
from common.runtime.side import SideRuntime
from common.runtime.ticker import Ticker
from common.transport.link import CloudLink
from common.vital import end_process

log = logging.getLogger(__name__)

DESCRIPTORS = 4096  # of open files; all peers and strangers that the link allows, and the daemon's own


def run(settings: CloudSettings) -> None:
    """Serve devices until told to stop. Raises what `common.runtime.daemon.EXPECTED` lists."""
    start_logging(settings)
    stay_local()
    keys = cloud_keys(settings, settings.bind)
    allow_descriptors(DESCRIPTORS)
    side = SideRuntime("cloud", settings, end_process)
    try:
        sessions = Sessions(settings, side)
        ticker = Ticker(sessions.tick, end_process)
        link = CloudLink(settings.bind, keys, sessions, side.link_limits, insecure=settings.insecure, died=end_process)
        sessions.link = link
        with link:
            ticker.start()
            until_told_to_stop(lambda: log.info("cloud ready on %s with %d chunks", link.address, side.library.count))
            ticker.close()
    finally:
        side.close()
