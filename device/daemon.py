"""The device daemon."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from functools import partial

from common.answer.request import Request
from common.daemon.daemon import THREADS_END, device_keys, serving
from common.daemon.side import SideRuntime
from common.process.stopping import until_told, within
from common.process.vital import end_process
from common.transport.address import TransportError
from common.transport.device_link import DeviceLink
from device.engine import DeviceEngine
from device.http.options import HttpOptions
from device.http.server import HttpServer
from device.settings import DeviceSettings, origins_in

log = logging.getLogger(__name__)

DEFAULT_MAX_TOKENS = 128  # of a request that names no limit


def run(settings: DeviceSettings) -> None:
    """Serve until told to stop; a start that fails is one line on stderr and exit code 2. Does not return."""
    with serving("dragon device", settings) as stack:
        _serve(settings, stack)


def _serve(settings: DeviceSettings, stack: ExitStack) -> None:
    """Serve until `Stopped`; the `stack` ends it then: clients are told first, then the cloud, then the threads end."""
    with_cloud = settings.cloud is not None and settings.privacy != "offline"
    keys = device_keys(settings, settings.cloud) if settings.cloud is not None and with_cloud else None
    options = _http_options(settings)
    side = SideRuntime("device", settings, end_process, settings.draft, settings.verifying)
    stack.callback(partial(within, THREADS_END, side.close))
    engine = DeviceEngine(settings, side)
    server = _listening(engine, options)
    link = None
    if settings.cloud is not None and engine.cloud.connection is not None:
        link = DeviceLink(
            settings.cloud,
            keys,
            engine.cloud.connection,
            side.link_limits,
            insecure=settings.insecure,
            renew=partial(device_keys, settings, settings.cloud),
            died=end_process,
        )
    engine.start(link)
    if link is not None:
        stack.enter_context(link)
    stack.callback(engine.close)
    stack.enter_context(server)
    log.info("device ready on %s", server.url)
    until_told()


def _listening(engine: DeviceEngine, options: HttpOptions) -> HttpServer:
    try:
        return HttpServer(engine, options, end_process)
    except OSError as error:
        raise TransportError(
            f"{options.host}:{options.port} can't be listened on ({(error.strerror or str(error)).lower()}); stop "
            "what uses it, or choose another --port."
        ) from None


def _http_options(settings: DeviceSettings) -> HttpOptions:
    defaults = Request(
        question="",
        prompt="",
        max_tokens=min(DEFAULT_MAX_TOKENS, settings.max_tokens),
        privacy=settings.privacy,
        sampler=settings.sampler,
        placement=settings.placement,
        entries=settings.entries,
        documents=settings.documents,
    )
    return HttpOptions(
        host=settings.host,
        port=settings.port,
        api_key=settings.api_key.get_secret_value() if settings.api_key is not None else None,
        insecure=settings.insecure,
        defaults=defaults,
        most_tokens=settings.max_tokens,
        max_waiting=settings.queue,
        allow_origins=origins_in(settings.allow_origins),
    )
