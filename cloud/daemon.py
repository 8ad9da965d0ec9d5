"""The cloud daemon."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import SettingsConfigDict

from common.answer.request import starting
from common.configuration.settings import Address, Folder, Settings, is_loopback
from common.daemon.start import THREADS_END, Ticker, Watchdog, allow_descriptors, cloud_keys, serving, stay_alone
from common.engine.model.imports import importing_models
from common.metrics.server import MetricsServer
from common.process.lifetime import ServiceManager, Startup, until_told, within
from common.process.machine import keep_loaded
from common.process.threads import Died, end_process
from common.transport.cloud_link import CloudLink
from common.transport.keys import CloudKeys
from common.transport.sending import LinkToDevices, Peer
from proto.errors import ProtocolError
from proto.messages import MOST_DOCUMENTS, Hello, Message

# --- settings
# The cloud daemon's settings.

LOCAL: Final = "local"  # a Ray cluster of this machine alone, which is started and ended with the daemon

_PLACE = re.compile(r"(\[[^\]\s]+\]|[^:/\s]+):(?P<port>\d{1,5})")


def _place(value: object) -> str:
    """`HOST:PORT` of what listens for scrapes; a port alone is one of this machine's own."""
    text = f"127.0.0.1:{value}" if re.fullmatch(r"\d+", str(value)) else str(value)
    match = _PLACE.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 2**16:
        raise ValueError("metrics are listened for at a port, e.g. 9464, or an address like 0.0.0.0:9464")
    return text


def _cluster(text: str) -> str:
    match = _PLACE.fullmatch(text)
    if match is not None and text.startswith("["):
        raise ValueError("a Ray cluster is reached over IPv4: name its head, or give an address of that kind")
    if text != LOCAL and (match is None or not 0 < int(match["port"]) < 2**16):
        raise ValueError(f"the head of a Ray cluster is HOST:PORT, e.g. 192.0.2.7:6379; or {LOCAL}")
    return text


Place = Annotated[str, BeforeValidator(_place)]
Cluster = Annotated[str, AfterValidator(_cluster)]


class CloudSettings(Settings):
    """Settings of `dragon cloud`: file `cloud.toml`, variables `DRAGON_CLOUD_...`."""

    model_config = SettingsConfigDict(env_prefix="DRAGON_CLOUD_")

    role: ClassVar[Literal["device", "cloud"]] = "cloud"

    data: Folder = Field(default_factory=lambda known: known["data_dir"] / "cloud")
    """Folder of this role's state: library, keys, decode profile, keys and values of documents."""
    bind: Address = "tcp://127.0.0.1:8601"
    """Address that the cloud listens on."""
    metrics: Place | None = None
    """Port on this machine, or HOST:PORT, at which Prometheus finds metrics; none: nowhere."""
    insecure: bool = False
    """Allow what would be readable or open to everybody on the network."""
    max_sessions: int = Field(default=64, ge=1, lt=2**20)
    """Answers at a time, of all devices together."""
    max_sessions_per_key: int = Field(default=16, ge=1, lt=2**20)
    """Answers at a time of one device."""
    workers: int = Field(default=0, ge=0, le=256)
    """Processes that answer, each with a model, behind the one that devices reach; 0: one process does all."""
    ray: Cluster | None = None
    """Head of the Ray cluster on whose machines these processes run, as HOST:PORT; local: a cluster of this machine."""
    worker_gpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """GPUs that Ray reserves for each of them; a fraction shares one."""
    worker_silence_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Silence of such a process, or of one of its threads, after which it is killed and another one is started."""
    eager: int = Field(default=4, ge=0, lt=2**20)
    """Answers under way up to which those of `coupled` decode on while they wait for proposals."""
    session_idle_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Silence of a device after which its answer is dropped."""
    max_query_bytes: int = Field(default=8192, ge=1, lt=2**15)
    """Longest prompt, in bytes of UTF-8."""
    max_documents: int = Field(default=MOST_DOCUMENTS, ge=1, le=MOST_DOCUMENTS)
    """Most chunks that one answer may retrieve."""

    @property
    def shares_machine(self) -> bool:
        """Whether devices run on this machine only."""
        return is_loopback(self.bind)

    def refusal(self) -> str | None:
        """The reason that these settings don't go together, in one sentence; None when they do."""
        if not is_loopback(self.bind) and self.curve == "off" and not self.insecure:
            return (
                f"bind = {self.bind!r} with curve = 'off' would serve everybody on the network in the clear:"
                " set curve = 'auto', or insecure = true"
            )
        if self.ray is not None and not self.workers:
            return f"ray = {self.ray!r} runs workers: say how many with workers"
        if self.worker_gpus and self.ray is None:
            return f"worker_gpus = {self.worker_gpus:g} is what Ray reserves: set ray, or leave worker_gpus out"
        return None


# --- reception
# Receives devices while the cloud is starting.

PERIOD: Final = 1.0  # seconds between two messages to a device that waits


class Reception:
    """Handler of the link of a cloud that has nothing to answer with yet: tells whoever says hello what it is at, then
    and when that changes.
    """

    def __init__(self, startup: Startup) -> None:
        self.link: LinkToDevices | None = None  # set before the link starts to deliver
        self._startup = startup
        self._waiting: dict[Peer, str] = {}  # what each was told last
        self._lock = threading.Lock()
        self._next = 0.0  # when they may be told again

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
        """Tell those who wait the news. Whether any do."""
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
            self.link.send(peer, starting(doing))


@contextmanager
def receiving(settings: CloudSettings, keys: CloudKeys | None, startup: Startup, died: Died) -> Iterator[str]:
    """Listen where `settings` say, for the time of the block, and tell devices how far the `startup` is.

    The block gets the address, which nobody else can take meanwhile. Behind it the connections are closed, and devices
    come again. Raises `TransportError` if the address can't be listened on.
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
        from cloud.gateway.fleet import serve_by_workers

        serve_by_workers(settings, keys, stack, manager, scraped)
    startup = Startup(manager.status)
    with receiving(settings, keys, startup, end_process) as address:
        startup.at("importing libraries")
        with importing_models():  # here, as torch takes seconds, and a port that is taken already is told of at once
            from cloud.sessions import Sessions
            from common.daemon.side import SideRuntime
            from common.daemon.start import Ticker
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
