"""The cloud daemon as a gateway: keys, allow-list and address are here, models and libraries with the workers."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from cloud.gateway.fleet import Fleet
from cloud.gateway.gateway import Gateway
from cloud.gateway.librarian import Librarian
from cloud.gateway.metrics import GatewayMetrics
from cloud.gateway.processes import Launcher, LocalLauncher
from cloud.reception import receiving
from cloud.settings import CloudSettings
from common.configuration.configuration import ConfigurationError
from common.configuration.settings import KV_SHARE
from common.daemon.watchdog import Watchdog
from common.library.snapshots import forget, publish
from common.metrics.server import MetricsServer
from common.process.memory import memory
from common.process.neighbours import cores_each
from common.process.service_manager import ServiceManager
from common.process.startup import Startup
from common.process.stopping import until_told
from common.process.vital import end_process
from common.transport.keys import CloudKeys
from common.transport.limits import Limits, largest_payload
from common.transport.link import CloudLink

log = logging.getLogger(__name__)

_LONGEST_PATH: Final = 90  # bytes of a socket's; systems allow a little more


def serve_by_workers(
    settings: CloudSettings,
    keys: CloudKeys | None,
    stack: ExitStack,
    manager: ServiceManager,
    scraped: MetricsServer | None,
) -> None:
    """Serve devices by `settings.workers` processes until `Stopped`; the `stack` ends them then.

    Their metrics and the gateway's are told where they are `scraped`. Raises `ConfigurationError` where no worker can
    serve.
    """
    startup = Startup(manager.status)
    with receiving(settings, keys, startup, end_process) as address:
        if settings.ray is None:
            forget(settings.library)
        else:
            startup.at("copying the library for the workers")
            publish(settings.library)
            stack.callback(Librarian(settings_of_worker(settings)).close)
        fleet = Fleet(settings.workers, _launcher(settings, stack), settings.worker_silence_seconds, end_process)
        fleet.start()
        stack.callback(fleet.close)
        startup.at("loading the workers' models")
        if not fleet.until_one_serves():
            raise ConfigurationError("no worker could be started; it has said why")
    gateway = Gateway(fleet, settings.max_sessions_per_key)
    limits = Limits(payload_bytes=largest_payload(fleet.vocabulary))
    link = CloudLink(address, keys, gateway, limits, insecure=settings.insecure, died=end_process, beside=fleet.turns)
    gateway.link = link
    fleet.serve(gateway)
    stack.enter_context(link)
    stack.callback(gateway.close)
    if scraped is not None:
        scraped.serve(GatewayMetrics(gateway, fleet, link.counters).text)
    manager.ready(f"serving devices on {link.address}")
    stack.enter_context(Watchdog(manager, {"link": link.ask, "channel": fleet.ask}, end_process))
    log.info("cloud ready on %s with workers", link.address)
    until_told()


def _launcher(settings: CloudSettings, stack: ExitStack) -> Launcher:
    values = settings_of_worker(settings)
    if settings.ray is not None:
        from cloud.gateway.ray_launcher import RayLauncher

        return RayLauncher(settings.ray, values, settings.workers, values["threads"], settings.worker_gpus)
    folder = socket_folder(settings.data / "workers")
    stack.callback(partial(shutil.rmtree, folder, ignore_errors=True))
    return LocalLauncher(values, f"ipc://{folder / 'workers'}", settings.workers)


def settings_of_worker(settings: CloudSettings) -> dict[str, Any]:
    """The settings of one worker: its part of the machine's cores and memory."""
    values = {name: getattr(settings, name) for name in CloudSettings.model_fields}
    count = settings.workers
    kv_bytes = settings.kv_bytes or memory().total // KV_SHARE
    values |= {"workers": 0, "ray": None, "worker_gpus": 0.0, "metrics": None}
    values["threads"] = settings.threads or cores_each(count, settings.shares_machine)
    values["kv_bytes"] = max(2**20, kv_bytes // count)
    return values


def socket_folder(folder: Path) -> Path:
    """Make the folder of the workers' socket, this user's only. Raises `ConfigurationError` for a path too long."""
    if len(os.fsencode(folder)) > _LONGEST_PATH:
        raise ConfigurationError(f"data = {folder.parent}: the path is too long for the socket of workers; shorten it")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
