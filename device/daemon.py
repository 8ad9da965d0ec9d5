"""The device daemon."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from common.answer.request import Request
from common.configuration.settings import is_loopback
from common.daemon.start import THREADS_END, Watchdog, device_keys, serving, stay_alone
from common.engine.model.imports import importing_models
from common.process.lifetime import ServiceManager, Startup, wait_until_stopped, within
from common.process.machine import keep_loaded
from common.process.threads import end_process
from common.transport.address import TransportError
from common.transport.device_link import DeviceLink
from device.access import tls
from device.access.admission import ApiKeyGate
from device.access.api_keys import ApiKeyFiles
from device.http.options import HttpOptions
from device.http.server import HttpServer
from device.settings import DeviceSettings, names_in, origins_in

log = logging.getLogger(__name__)

DEFAULT_MAX_TOKENS = 128  # of a request without a limit


def _nobody() -> None:
    """Tells nobody."""


def run_device(settings: DeviceSettings, listening: Callable[[], object] = _nobody) -> None:
    """Serves until told to stop. Does not return.

    `listening` is called when clients can connect. A failed start is a line on stderr and exit code 2.
    """
    with serving("dragon device", settings) as (stack, manager):
        _serve(settings, stack, manager, listening)


def _serve(
    settings: DeviceSettings,
    stack: ExitStack,
    manager: ServiceManager,
    listening: Callable[[], object] = _nobody,
) -> None:
    """The `stack` ends serving: clients hear first, then the cloud, then threads end."""
    stay_alone(settings, stack)
    with_cloud = settings.cloud is not None and settings.privacy != "offline"
    keys = device_keys(settings, settings.cloud) if settings.cloud is not None and with_cloud else None
    options = _http_options(settings)
    _judge_way(options)
    startup = Startup(manager.status)
    server = stack.enter_context(_listening(options, startup))
    listening()
    startup.at("importing libraries")
    with importing_models():  # slow; meanwhile clients are told about the start
        from common.daemon.side import SideRuntime
        from device.engine import DeviceEngine

    side = SideRuntime("device", settings, end_process, settings.draft, settings.verifying, startup)
    stack.callback(partial(within, THREADS_END, side.close))
    engine = DeviceEngine(settings, side, process=True)
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
    stack.callback(server.stop)
    keep_loaded()
    server.serve(engine)
    of_link = {} if link is None else {"link": link.ask}
    startup.over(settings.last_start(settings.role))
    manager.ready(f"serving on {server.url}")
    stack.enter_context(Watchdog(manager, side.threads | of_link | {"http": server.ask}, end_process))
    log.info("device ready on %s", server.url)
    side.measure_when_idle()
    wait_until_stopped()


def _judge_way(options: HttpOptions) -> None:
    """Checks the TLS files, and warns about an unsafe connection. Raises `TlsError`."""
    if options.tls is not None:
        for text in tls.complaints(options.tls, tls.check_tls_files(options.tls), tls.now()):
            log.warning("%s", text)
    elif not is_loopback(options.host):
        log.warning(
            "HTTP on %s is not encrypted: others can read keys, questions and answers; set tls_certificate and"
            " tls_key, unless a proxy in front has TLS",
            options.host,
        )


def _listening(options: HttpOptions, startup: Startup) -> HttpServer:
    try:
        return HttpServer(options, startup, end_process)
    except OSError as error:
        raise TransportError(
            f"{options.host}:{options.port} is not free for listening ({(error.strerror or str(error)).lower()}); "
            "stop the program that uses it, or choose another --port."
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
        unmatched=settings.unmatched,
        end_repetition=settings.end_repetition,
    )
    return HttpOptions(
        host=settings.host,
        port=settings.port,
        admission=ApiKeyGate(ApiKeyFiles(settings.keys)),
        tls=settings.tls,
        insecure=settings.insecure,
        defaults=defaults,
        most_tokens=settings.max_tokens,
        max_waiting=settings.queue,
        allow_origins=origins_in(settings.allow_origins),
        model_aliases=names_in(settings.model_aliases),
    )
