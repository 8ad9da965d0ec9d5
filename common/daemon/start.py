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
THREADS_END = 0.5  # seconds for threads to end; they hold nothing durable
TRUSTED_CLOUD = "cloud"  # a device's name for its cloud's key
SWITCH_INTERVAL = 0.0005  # seconds until a waiting thread runs; a token takes milliseconds
NOISY = ("httpx", "sentence_transformers", "transformers", "urllib3", "filelock", "asyncio", "faiss")  # loggers

log = logging.getLogger(__name__)

# Exceptions of a start with unusable settings or files: one sentence each.
EXPECTED = (ConfigurationError, ModelError, LibraryError, TransportError, ValueError)


def _stay_local() -> None:
    """Turns off telemetry to the model hub and tokenizer threads; shortens thread turns."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.setswitchinterval(SWITCH_INTERVAL)


@contextmanager
def serving(name: str, settings: Settings, worker: int | None = None) -> Iterator[tuple[ExitStack, ServiceManager]]:
    """Sets up a daemon's process, and ends it after the block.

    The block pushes cleanups on the stack and reports progress to the service manager. `worker` numbers one of
    several processes. A stop, or an `EXPECTED` exception, exits.
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
    """Turns a failed start into a line on stderr and exit code 2."""
    try:
        yield
    except EXPECTED as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except OSError as error:
        print(f"{name}: {error.strerror or error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:  # before the daemon handles signals
        sys.exit(INTERRUPTED)


def stay_alone(settings: Settings, stack: ExitStack) -> None:
    """Locks the data folder against other daemons of the role until the `stack` ends.

    Two daemons would overwrite each other's keys and files. Raises `ConfigurationError` if one is running.
    """
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        stack.enter_context(sole_process(settings.lock))
    except LockHeld:
        raise ConfigurationError(
            f"data = {str(settings.data)!r} is in use by another {settings.role} daemon; stop that daemon, or set "
            "another data folder for this one"
        ) from None
    except OSError as error:  # e.g. a read-only disk
        reason = (error.strerror or str(error)).lower()
        log.warning("%s can't be locked (%s): a second daemon would not be noticed", settings.lock, reason)


def cloud_keys(settings: Settings, address: str) -> CloudKeys | None:
    """Returns the keys and allow-list of a cloud at `address`, None for plaintext.

    On loopback, until keys were exchanged, these are the keys shared by this user's daemons. Warns about a key pair
    without trusted devices, as after the last revocation. Raises `TransportError`.
    """
    if settings.curve == "off":
        return None
    folder = KeyFolder(settings.keys, "cloud")
    if is_loopback(address) and not folder.complete():
        if folder.has_pair:
            shared = (
                "no device is trusted: only this user's devices on this machine can connect, with the keys in %s; %s"
            )
            log.warning(shared, settings.local_keys, ADD_DEVICE)
        return local_cloud_keys(settings.local_keys)
    return folder.cloud_keys()


def device_keys(settings: Settings, address: str) -> DeviceKeys | None:
    """Returns the keys of a device for the cloud at `address`, None for plaintext.

    On loopback, until keys were exchanged, these are the keys shared by this user's daemons. Raises
    `TransportError`.
    """
    if settings.curve == "off":
        return None
    folder = KeyFolder(settings.keys, "device")
    if is_loopback(address) and not folder.complete(TRUSTED_CLOUD):
        return local_device_keys(settings.local_keys)
    return folder.device_keys(TRUSTED_CLOUD)


def allow_descriptors(wanted: int) -> None:
    """Raises the limit of open files towards `wanted`.

    Without descriptors nobody can connect, and ZeroMQ retries without a pause.
    """
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == unlimited else min(wanted, hard), hard))


# --- watchdog
# Signs of life for the service manager, from the working threads.

Ask = Callable[[Callable[[], None]], object]  # has a thread call the function between pieces of work

SHARE: Final = 4  # signs of life per allowed time
_LOOK: Final = 0.5  # seconds between checks for the daemon's end


class LivenessMonitor(Protocol):
    @property
    def watchdog(self) -> float | None:
        """Seconds allowed between signs, None for no limit."""
        ...

    def alive(self) -> object: ...


class Watchdog:
    """Asks threads for a sign of life, and reports once all have answered.

    A context manager, idle if the manager wants no signs. After a thread hangs, the log names it, and the manager
    restarts the daemon.
    """

    def __init__(self, manager: LivenessMonitor, threads: Mapping[str, Ask], died: Died | None = None) -> None:
        """`threads` maps names for the log to functions that ask."""
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
        # Not joined, as it may wait for a hanging thread.
        self._closing.set()

    def _run(self) -> None:
        assert self._allowed is not None
        while not self._closing.is_set():
            answers = {name: threading.Event() for name in self._threads}
            try:
                for name, ask in self._threads.items():
                    ask(answers[name].set)
            except Exception:
                if self._closing.is_set():  # ending threads can't be asked
                    return
                raise
            deadline = time.monotonic() + self._allowed / 2
            for name, answer in answers.items():
                self._wait(name, answer, deadline)
            if not self._closing.is_set():
                self._manager.alive()
            self._closing.wait(self._allowed / SHARE)

    def _wait(self, name: str, answer: threading.Event, deadline: float) -> None:
        """Logs a silent thread at the deadline."""
        told = False
        while not answer.wait(_LOOK) and not self._closing.is_set():
            if not told and time.monotonic() > deadline:
                told = True
                log.warning("the thread %r does not answer; if this continues, the daemon restarts", name)


# --- ticker
# The scheduler thread (DRAGON §3: Scheduler).

PERIOD = 0.02  # seconds; delay in noticing a stalled answer
IDLE = 0.1  # seconds between ticks while idle: each wakes a sleeping processor


class Ticker:
    """Calls `tick(now)` on its own thread, less often while it returns False."""

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
                log.exception("the scheduler failed once and continues")
