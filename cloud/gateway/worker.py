"""`python -m cloud.gateway.worker`: a process with a model, behind the gateway.

Settings and keys are JSON on stdin. It ends with the gateway.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from functools import partial

from common.process.files import keep_private
from common.process.machine import open_closed_streams

log = logging.getLogger(__name__)


def main() -> None:
    number, place, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    open_closed_streams()
    keep_private()
    from cloud.gateway.channel import ChannelKeys
    from cloud.settings import CloudSettings
    from common.configuration.configuration import keep_caches
    from common.daemon.start import THREADS_END, serving
    from common.engine.model.imports import importing_models
    from common.process.lifetime import wait_until_stopped, within
    from common.process.machine import keep_loaded
    from common.process.threads import end_process
    from common.transport.keys import KeyPair

    given = json.load(sys.stdin)
    settings = CloudSettings(**given["settings"])
    keys = None if given["keys"] is None else ChannelKeys(given["keys"][0], KeyPair(*given["keys"][1:]))
    keep_caches(settings)
    with serving(f"dragon cloud (worker {number})", settings, number) as (stack, _):
        with importing_models():
            from cloud.gateway.channel import WorkerLink
            from cloud.gateway.gpus import keep_to, take_gpu
            from cloud.sessions import Sessions
            from common.daemon.side import SideRuntime
            from common.daemon.start import Ticker, Watchdog

        if settings.torch_device != "cpu":
            keep_to(take_gpu(place, given["workers"]) if given["workers"] else given["gpus"] or 1.0)
        snapshots: bool = given["snapshots"]  # otherwise the first worker keeps the library
        side = SideRuntime("cloud", settings, end_process, watches=place == 0 and not snapshots, snapshots=snapshots)
        stack.callback(partial(within, THREADS_END, side.close))
        sessions = Sessions(settings, side, process=True)
        ticker = Ticker(sessions.tick, end_process)
        link = WorkerLink(
            address,
            number,
            sessions,
            keys=keys,
            metrics=sessions.metrics.text,
            silence=settings.worker_silence_seconds,
            died=end_process,
        )
        sessions.link = link
        keep_loaded()
        link.start()
        stack.callback(link.close)
        ticker.start()
        stack.callback(ticker.close)
        stack.enter_context(Watchdog(link, side.threads | {"link": link.ask}, end_process))
        if (niceness := os.nice(0)) > 0:
            log.warning("its niceness is %d: other programs of this machine run first", niceness)
        link.ready(side.decoder.vocabulary)
        side.measure_when_idle()
        wait_until_stopped()


if __name__ == "__main__":
    main()
