"""Start of a daemon of either role: logging, keys, failures, a watchdog and a ticker."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Final, Protocol, Self

from common.configuration.configuration import ConfigurationError
from common.configuration.settings import Settings, is_loopback
from common.engine.model.errors import ModelError
from common.library.errors import LibraryError
from common.process.files import make_private
from common.process.lifetime import LockHeld, ServiceManager, exit_on_stop, sole_process
from common.process.log_lines import log_to_stderr
from common.process.threads import Died, vital_thread
from common.transport.address import TransportError
from common.transport.keys import ADD_DEVICE, CloudKeys, DeviceKeys, KeyFolder, local_cloud_keys, local_device_keys

BAD_INPUT = 2
INTERRUPTED = 130
THREADS_END = 0.5  # seconds that a stopping daemon leaves its threads; what they hold is in memory only
TRUSTED_CLOUD = "cloud"  # name under which a device trusts its cloud's key
SWITCH_INTERVAL = 0.0005  # seconds; a thread that waits for the interpreter gets it soon, a token takes milliseconds
NOISY = ("httpx", "sentence_transformers", "transformers", "urllib3", "filelock", "asyncio", "faiss")  # loggers

log = logging.getLogger(__name__)

# Exceptions of a start with settings or files that can't be used; each carries one sentence.
EXPECTED = (ConfigurationError, ModelError, LibraryError, TransportError, ValueError)


def _stay_local() -> None:
    """Set this process up: no telemetry to the model hub, no tokenizer threads, short turns between threads."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.setswitchinterval(SWITCH_INTERVAL)


@contextmanager
def serving(name: str, settings: Settings, worker: int | None = None) -> Iterator[tuple[ExitStack, ServiceManager]]:
    """A daemon's process: set up, and ended behind the block. What the block begins says on the stack how it ends, and
    to the service manager how far it is. `worker` is the number of a process that is one of several.

    A block that is told to stop, or fails with a start's exceptions (`EXPECTED`), does not return.
    """
    manager = ServiceManager.of(os.environ)
    with exit_on_stop(), one_line_errors(name):
        log_to_stderr(
            settings.log_level, settings.log_format, NOISY, worker
        )  # no level logs prompts, documents or tokens
        _stay_local()
        make_private(settings.private_folders)
        with ExitStack() as stack:
            try:
                yield stack, manager
            finally:
                manager.stopping()


@contextmanager
def one_line_errors(name: str) -> Iterator[None]:
    """Turn a failed start into one line on stderr and exit code 2."""
    try:
        yield
    except EXPECTED as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except OSError as error:
        print(f"{name}: {error.strerror or error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:  # before the daemon listens to signals itself: nothing has begun
        sys.exit(INTERRUPTED)


def stay_alone(settings: Settings, stack: ExitStack) -> None:
    """Keep other daemons of the role away from the data folder until the `stack` ends: they would take each other's
    keys and files. Raises `ConfigurationError` where one is there already.
    """
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        stack.enter_context(sole_process(settings.lock))
    except LockHeld:
        raise ConfigurationError(
            f"data = {str(settings.data)!r} is in use by another {settings.role} daemon; stop that one, or set another"
            " data for this one"
        ) from None
    except OSError as error:  # of a disk that can only be read, for example
        reason = (error.strerror or str(error)).lower()
        log.warning("%s can't be locked (%s): a second daemon would not be noticed", settings.lock, reason)


def cloud_keys(settings: Settings, address: str) -> CloudKeys | None:
    """The keys and the allow-list of a cloud that listens at `address`; None for a plaintext link.

    On loopback, while no keys have been exchanged, those that this user's daemons share. The log says so where there
    is a key pair and no trusted device, as after the last one was revoked. Raises `TransportError`.
    """
    if settings.curve == "off":
        return None
    folder = KeyFolder(settings.keys, "cloud")
    if is_loopback(address) and not folder.complete():
        if folder.has_pair:
            shared = "no device is trusted: devices of this user on this machine get in by the keys in %s; %s"
            log.warning(shared, settings.local_keys, ADD_DEVICE)
        return local_cloud_keys(settings.local_keys)
    return folder.cloud_keys()


def device_keys(settings: Settings, address: str) -> DeviceKeys | None:
    """The keys of a device whose cloud is at `address`, and that cloud's; None for a plaintext link.

    On loopback, while no keys have been exchanged, those that this user's daemons share. Raises `TransportError`.
    """
    if settings.curve == "off":
        return None
    folder = KeyFolder(settings.keys, "device")
    if is_loopback(address) and not folder.complete(TRUSTED_CLOUD):
        return local_device_keys(settings.local_keys)
    return folder.device_keys(TRUSTED_CLOUD)


def allow_descriptors(wanted: int) -> None:
    """Raise this process's own limit of open files to `wanted`, as far as the system allows it.

    Where no descriptor is left, nobody can connect, and ZeroMQ tries again without a pause.
    """
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == unlimited else min(wanted, hard), hard))


# --- watchdog
# Signs of life for the service manager: they come from the threads that do a daemon's work, or not at all.

Ask = Callable[[Callable[[], None]], object]  # has a thread call the function, between two pieces of its work

SHARE: Final = 4  # signs of life within the time that the manager allows for one
_LOOK: Final = 0.5  # seconds between two looks whether the daemon ends


class LivenessMonitor(Protocol):
    """Whoever wants signs of life."""

    @property
    def watchdog(self) -> float | None:
        """Seconds within which one is wanted; None: never."""
        ...

    def alive(self) -> object:
        """Take a sign of life."""
        ...


class Watchdog:
    """Asks threads again and again whether they work, and tells the manager each time when all have answered.

    A context manager. Where the manager wants no signs of life, no thread is begun. One that hangs makes the signs end,
    and the manager start the daemon anew; the log names it before.
    """

    def __init__(self, manager: LivenessMonitor, threads: Mapping[str, Ask], died: Died | None = None) -> None:
        """`threads`: ways to ask them, by the names that the log has for them."""
        self._manager = manager
        self._threads = dict(threads)
        self._closing = threading.Event()
        self._allowed = manager.watchdog
        self._thread = vital_thread(self._run, "watchdog", died)

    def __enter__(self) -> Self:
        if self._allowed is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not joined: it holds nothing, and may be waiting for a thread that hangs.
        self._closing.set()

    def _run(self) -> None:
        assert self._allowed is not None
        while not self._closing.is_set():
            answers = {name: threading.Event() for name in self._threads}
            try:
                for name, ask in self._threads.items():
                    ask(answers[name].set)
            except Exception:
                if self._closing.is_set():  # then threads end, and can't be asked
                    return
                raise
            deadline = time.monotonic() + self._allowed / 2
            for name, answer in answers.items():
                self._wait(name, answer, deadline)
            if not self._closing.is_set():
                self._manager.alive()
            self._closing.wait(self._allowed / SHARE)

    def _wait(self, name: str, answer: threading.Event, deadline: float) -> None:
        """Wait until the thread has answered or the daemon ends; at the deadline, the log says who did not."""
        told = False
        while not answer.wait(_LOOK) and not self._closing.is_set():
            if not told and time.monotonic() > deadline:
                told = True
                log.warning("the thread %r does not answer; if that stays so, the daemon is started anew", name)


# --- ticker
# The scheduler thread, which makes the answers look at the clock (DRAGON §3: Scheduler).

PERIOD = 0.02  # seconds; a stalled answer is noticed this much later than it could be
IDLE = 0.1  # seconds between two looks where nothing is under way: each wakes a processor that could sleep


class Ticker:
    """Calls `tick(now)` periodically, on a thread of its own, until closed; less often while it says that nothing is
    under way.
    """

    def __init__(self, tick: Callable[[float], bool], died: Died | None = None) -> None:
        self._tick = tick
        self._closing = threading.Event()
        self._thread = vital_thread(self._run, "scheduler", died)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        busy = True
        while not self._closing.wait(PERIOD if busy else IDLE):
            try:
                busy = self._tick(time.monotonic())
            except Exception:
                log.exception("the scheduler stumbled; it goes on")
