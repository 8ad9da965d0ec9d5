"""Lifetime of a daemon's process: start, sole instance and end.

On SIGTERM or SIGINT a daemon ends in order within seconds, whatever it is doing.

    with exit_on_stop():                # before anything is loaded
        with ExitStack() as stack:      # ends everything in reverse order
            ...
            wait_until_stopped()

A signal raises `Stopped` on the main thread, so that running blocks, e.g. a model's import, are left normally. A
separate thread enforces a time limit: no library can hold the process.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, NoReturn, Self

import psutil

from common.process.files import PRIVATE, private_folder, replacing
from common.process.machine import python_environment

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
LONGEST: Final = 1.5  # seconds for an orderly end; supervisors may rely on 2
KILLED: Final = 128  # plus the signal's number: exit code after a forced end

_STDERR: Final = 2


class Stopped(BaseException):
    """Raised once on the main thread when the process must stop."""


@contextmanager
def exit_on_stop() -> Iterator[None]:
    """Ends the process after the block, or at a signal; for the main thread.

    The exit code is 0, or that of a `SystemExit`. After `LONGEST` seconds, or a second signal, the process is forced to
    end with the exit code of a signal in shells. Other exceptions propagate.
    """
    told = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if not told:
            told = True
            raise Stopped

    # The interpreter runs `on_signal` only when the main thread is free; the pipe is read at once.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="stopping", daemon=True).start()
    code: object = 0
    try:
        for number in SIGNALS:
            signal.signal(number, on_signal)
        yield
    except Stopped:
        pass
    except SystemExit as failure:
        code = failure.code
    except BaseException:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)  # threads may keep the process alive
        signal.set_wakeup_fd(before)
        raise
    told = True
    _end(code if isinstance(code, int) else 0 if code is None else 1)


def wait_until_stopped() -> NoReturn:
    while True:
        threading.Event().wait()


def within(seconds: float, close: Callable[[], None]) -> None:
    """Runs `close` and continues when it is done, or after `seconds` beside it."""
    thread = threading.Thread(target=close, name="closing", daemon=True)
    thread.start()
    thread.join(seconds)


def _end(code: int) -> NoReturn:
    """Ends the process after flushing logs; `sys.exit` would wait for all libraries' threads."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def _watch(reader: int) -> None:
    first = _told(reader, None)
    assert first is not None
    second = _told(reader, LONGEST)
    # A blocked reader of stderr may be the cause of the delay.
    if second is None and select.select([], [_STDERR], [], 0)[1]:
        os.write(_STDERR, f"dragon: stopping took longer than {LONGEST:g} s; the process ends now.\n".encode())
    os._exit(KILLED + (second or first))


def _told(reader: int, seconds: float | None) -> int | None:
    while select.select([reader], [], [], seconds)[0]:
        if (number := os.read(reader, 1)[0]) in SIGNALS:
            return number
    return None


# --- startup
# A slow start: the present stage, and the durations of the last start's stages.

log = logging.getLogger(__name__)

_STEP: Final = 10.0  # seconds between two lines about the same stage
_BEGINNING: Final = "beginning"
_MOST_BYTES: Final = 2**16  # of a file with stages
_LONGEST_STAGE: Final = 100  # shown characters


class Startup:
    """Records stages and durations of a start; written by one thread, read by any."""

    def __init__(
        self, tell: Callable[[str], object] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`tell` receives the log texts. The first stage begins with the process."""
        self._tell, self._clock = tell, clock
        self._work = _BEGINNING
        self._share: float | None = None
        self._told_at = 0.0
        self._began = clock() - max(0.0, time.time() - psutil.Process().create_time())
        self._stages: list[tuple[str, float]] = []

    def at(self, work: str, share: float | None = None) -> None:
        """Reports the stage `work`, e.g. `loading the language model`, with a done `share`.

        The share is from 0 to 1.
        """
        again, now = work == self._work, self._clock()
        if not again:
            self._end_stage(now)
        self._work, self._share = work, share
        if not again or now - self._told_at >= _STEP:
            self._told_at = now
            log.info("starting: %s", self)
            if self._tell is not None:
                self._tell(f"starting: {self}")

    def over(self, file: Path) -> None:
        """Ends the start and writes the durations to `file`."""
        self._end_stage(self._clock())
        try:
            private_folder(file.parent)
            with replacing(file) as written:
                written.write(json.dumps({"stages": self._stages}, indent=1).encode())
        except OSError as error:
            log.warning("%s can't be written: %s", file, error.strerror)

    def _end_stage(self, now: float) -> None:
        self._stages.append((self._work, round(now - self._began, 2)))
        self._began = now

    def __str__(self) -> str:
        return self._work if self._share is None else f"{self._work}, {100 * self._share:.0f} %"


def last_start(file: Path) -> list[tuple[str, float]]:
    """Stages and seconds of the last start from `file`; empty if unreadable."""
    try:
        with file.open("rb") as opened:
            stages = json.loads(opened.read(_MOST_BYTES))["stages"]
        return [(str(work)[:_LONGEST_STAGE], float(seconds)) for work, seconds in stages]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


# --- service_manager
# Systemd's protocol, see sd_notify(3). Each message is a datagram of lines NAME=VALUE to the socket in NOTIFY_SOCKET.
# Without the variable nothing is sent.

_PATIENCE: Final = 1.0  # seconds; a manager that does not read must not block the daemon
_LONGEST: Final = 512  # characters of a status


class ServiceManager:
    """Reports the daemon's state; no method raises or takes longer than a second."""

    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        """Without `address` nothing is sent; `watchdog` is the manager's limit between signs of life."""
        self._address = address
        self._untold: tuple[str, ...] = ()  # the ready message until the manager accepts it
        self.watchdog = watchdog if address else None

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self:
        """Takes the manager from the environment; removes its variables, so children stay silent."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        process = environment.pop("WATCHDOG_PID", "")
        ours = microseconds.isdecimal() and int(microseconds) > 0 and process in ("", str(os.getpid()))
        # A path, or an abstract socket of Linux; other managers are unknown.
        known = sys.platform != "win32" and address.startswith(("/", "@"))
        return cls(address if known else None, int(microseconds) / 1e6 if ours else None)

    def status(self, text: str) -> None:
        """Sends a line for `systemctl status`."""
        self._tell(_status(text))

    def ready(self, text: str) -> None:
        """Reports readiness with a status.

        If a busy manager misses it, `alive` repeats it. Otherwise the manager would end the daemon.
        """
        lines = ("READY=1", _status(text))
        self._untold = () if self._tell(*lines) else lines

    def alive(self) -> None:
        """Sends a sign of life."""
        if self._tell("WATCHDOG=1", *self._untold):
            self._untold = ()

    def stopping(self) -> None:
        """Reports the coming end of the daemon."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def _tell(self, *lines: str) -> bool:
        if self._address is None:
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
                speaker.settimeout(_PATIENCE)
                speaker.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            log.debug("the service manager did not receive %s: %s", lines[0], error)
            return False
        return True


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())[:_LONGEST]}"


# --- sole_process
# A lock for one process at a time, released at the latest by its end.

_TRIES: Final = 100  # a try fails only if the file is removed at that moment


class LockHeld(Exception):
    """Another process holds the lock."""


@contextmanager
def sole_process(file: Path) -> Iterator[None]:
    """Holds an exclusive lock on `file`, created empty and kept.

    The holder may remove the file. Children do not inherit the lock. Raises `LockHeld` at once, and `OSError` if
    locking is impossible.
    """
    descriptor = _locked(file)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(file: Path) -> int:
    for _ in range(_TRIES):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):  # removed meanwhile, maybe replaced
                if os.path.samestat(os.fstat(descriptor), os.stat(file, follow_symlinks=False)):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise LockHeld from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(file))


# --- together

PATIENCE: Final = 1.8  # seconds for an orderly end of all; supervisors may rely on 2
_READ_ON: Final = 0.1  # seconds for the last lines of an ended child: its own child may hold the pipe


class ChildProcesses:
    """Children by name; a context manager for their common end.

    They have their own process groups, so that Ctrl-C reaches only the parent, which signals each once. For the main
    thread: on Linux they end with their starting thread.
    """

    def __init__(self, commands: Mapping[str, Sequence[str]], tell: Callable[[str, str], None]) -> None:
        """Starts the children.

        Args:
            commands: by child name, see `common.process.machine.child_command`.
            tell: receives child name and printed line, on any thread.
        """
        self._tell = tell
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []
        try:
            for name, command in commands.items():
                self._start(name, command)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ended(self) -> dict[str, int]:
        """Exit codes of ended children, negative for signals."""
        codes = {name: process.poll() for name, process in self._processes.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def stop(self) -> None:
        """Ends all children, forcibly after `PATIENCE` seconds, and passes on their last lines."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)  # no effect on an ended process
        deadline = time.monotonic() + PATIENCE
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join(_READ_ON)

    def _start(self, name: str, command: Sequence[str]) -> None:
        process = subprocess.Popen(
            command,
            env=python_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._processes[name] = process
        reader = threading.Thread(target=self._pass_on, args=(name, process), name=f"lines of {name}", daemon=True)
        reader.start()
        self._readers.append(reader)

    def _pass_on(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._tell(name, line.decode("utf-8", "replace").rstrip("\r\n"))


# --- presence


@contextmanager
def show_presence(file: Path) -> Iterator[None]:
    """Shows this process's presence by a shared lock of `file`, creating it.

    Several processes may be present, without their children. If locking fails, nothing is shown.
    """
    descriptor = _opened(file)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def anybody_present(file: Path) -> bool:
    """Whether another process shows its presence by `file`."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        return False
    finally:
        os.close(descriptor)


def _opened(file: Path) -> int | None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # observers hold the lock only for a moment
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
