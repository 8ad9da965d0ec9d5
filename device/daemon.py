"""The device daemon."""

from __future__ import annotations

import logging
from functools import partial

from common.methods.request import Request
from common.runtime.daemon import device_keys, one_line_errors, start_logging, stay_local, until_told_to_stop
from common.runtime.side import SideRuntime
from common.transport.address import TransportError
from common.transport.device_link import DeviceLink
from common.vital import end_process
from device.engine import DeviceEngine
from device.http.options import HttpOptions
from device.http.server import HttpServer
from device.settings import DeviceSettings, origins_in

log = logging.getLogger(__name__)

DEFAULT_MAX_TOKENS = 128  # of a request that names no limit


def run(settings: DeviceSettings) -> None:
    """Serve until told to stop; a start that fails is one line on stderr and exit code 2."""
    with one_line_errors("dragon device"):
        start_logging(settings)
        stay_local()
        _serve(settings)


def _serve(settings: DeviceSettings) -> None:
    with_cloud = settings.cloud is not None and settings.privacy != "offline"
    keys = device_keys(settings, settings.cloud) if settings.cloud is not None and with_cloud else None
    options = _http_options(settings)
    side = SideRuntime("device", settings, end_process, settings.draft, settings.verifying)
    try:
        engine = DeviceEngine(settings, side)
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
        with _listening(engine, options) as server:
            engine.start(link)
            if link is not None:
                link.start()
            try:
                until_told_to_stop(lambda: log.info("device ready on %s", server.url))
            finally:
                engine.close()
                if link is not None:
                    link.close()
    finally:
        side.close()


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
