"""The life of a daemon's process: its start, that it is the only one, and its end.

On SIGTERM or SIGINT a daemon ends in order, and within seconds, whatever it is doing.

    with stopping():                    # from before anything is loaded
        with ExitStack() as stack:      # what is begun says here how it ends, the latest first
            ...
            until_told()

Being told raises `Stopped` on the main thread, so that what this thread is within, an import of a model for example,
is left as any block is. A thread of its own sees to it that this does not take forever: no library holds the process.
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
LONGEST: Final = 1.5  # seconds for an end in order; whoever stops a daemon may count on 2
KILLED: Final = 128  # and the signal's number: exit code of a process that did not end in order

_STDERR: Final = 2


class Stopped(BaseException):
    """The process has been told to stop. Raised on the main thread, once, wherever that is."""


@contextmanager
def exit_on_stop() -> Iterator[None]:
    """A block of the main thread with which the process ends: at once behind it, and when a signal says so.

    The exit code is 0, or what a `SystemExit` says. When the end takes longer than `LONGEST` seconds, or a second
    signal comes, the process ends where it is, with the exit code that shells give to one that the signal killed. Any
    other exception gets out, and takes its way.
    """
    told = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if not told:
            told = True
            raise Stopped

    # The interpreter runs `on_signal` when the main thread has time for it; what it writes here is read at once.
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
            signal.signal(number, signal.SIG_DFL)  # threads may keep the process
        signal.set_wakeup_fd(before)
        raise
    told = True
    _end(code if isinstance(code, int) else 0 if code is None else 1)


def wait_until_stopped() -> NoReturn:
    """Wait for `Stopped`."""
    while True:
        threading.Event().wait()


def within(seconds: float, close: Callable[[], None]) -> None:
    """Run `close` and go on when it is done, or when so many seconds have passed: it goes on beside what follows."""
    thread = threading.Thread(target=close, name="closing", daemon=True)
    thread.start()
    thread.join(seconds)


def _end(code: int) -> NoReturn:
    """End the process, its log written. Not by `sys.exit`, which waits for all threads, those of libraries, too."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def _watch(reader: int) -> None:
    """End the process when it was told a second time, or is not done long after the first."""
    first = _told(reader, None)
    assert first is not None
    second = _told(reader, LONGEST)
    # Whoever reads stderr may be what everybody waits for.
    if second is None and select.select([], [_STDERR], [], 0)[1]:
        os.write(_STDERR, f"dragon: stopping took longer than {LONGEST:g} s; the process ends where it is.\n".encode())
    os._exit(KILLED + (second or first))


def _told(reader: int, seconds: float | None) -> int | None:
    """The number of the next signal; None where none comes in so many seconds."""
    while select.select([reader], [], [], seconds)[0]:
        if (number := os.read(reader, 1)[0]) in SIGNALS:
            return number
    return None


# --- startup
# The start of a process that takes its time: what it does now, and where the time of the last start went.

log = logging.getLogger(__name__)

_STEP: Final = 10.0  # seconds between two lines about the same work
_BEGINNING: Final = "beginning"
_MOST_BYTES: Final = 2**16  # of a file with stages
_LONGEST_STAGE: Final = 100  # characters that are shown


class Startup:
    """Keeps what a start is at, and how long its stages took. Told on one thread, read on any."""

    def __init__(
        self, tell: Callable[[str], object] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`tell` is told what the log is told. The first stage began with the process."""
        self._tell, self._clock = tell, clock
        self._work = _BEGINNING
        self._share: float | None = None
        self._told_at = 0.0
        self._began = clock() - max(0.0, time.time() - psutil.Process().create_time())
        self._stages: list[tuple[str, float]] = []

    def at(self, work: str, share: float | None = None) -> None:
        """Say that `work` is under way (`loading the language model`), of which a `share` from 0 to 1 is done."""
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
        """Write to `file` where the time went: the process serves."""
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
    """Stages and seconds of the last start that wrote `file`; empty without one that can be read."""
    try:
        with file.open("rb") as opened:
            stages = json.loads(opened.read(_MOST_BYTES))["stages"]
        return [(str(work)[:_LONGEST_STAGE], float(seconds)) for work, seconds in stages]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


# --- service_manager
# The words that a daemon has for the service manager that started it: systemd's protocol, see sd_notify(3).
#
# Each message is a datagram of lines NAME=VALUE to the socket that the variable NOTIFY_SOCKET names. Where there is
# none, nothing is sent.

_PATIENCE: Final = 1.0  # seconds; a manager that does not read must not hold the daemon
_LONGEST: Final = 512  # characters of a status


class ServiceManager:
    """Tells the manager how far the daemon is. No method raises or takes longer than a second."""

    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        """Without an `address` nobody is told. `watchdog`: seconds within which the manager wants signs of life."""
        self._address = address
        self._untold: tuple[str, ...] = ()  # that the daemon serves, which the manager did not take in
        self.watchdog = watchdog if address else None

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self:
        """The manager that the environment names, without whose variables it is left: children must not speak."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        process = environment.pop("WATCHDOG_PID", "")
        ours = microseconds.isdecimal() and int(microseconds) > 0 and process in ("", str(os.getpid()))
        # A path, or a name of Linux's own for sockets; anything else is of a manager that is not known here.
        known = sys.platform != "win32" and address.startswith(("/", "@"))
        return cls(address if known else None, int(microseconds) / 1e6 if ours else None)

    def status(self, text: str) -> None:
        """Say in one line what the daemon is doing; `systemctl status` shows it."""
        self._tell(_status(text))

    def ready(self, text: str) -> None:
        """Say that the daemon serves from now on, and what `status` says; with the next sign of life again, if a
        manager that is busy does not take it in: it would end a daemon that it takes to be starting for ever.
        """
        lines = ("READY=1", _status(text))
        self._untold = () if self._tell(*lines) else lines

    def alive(self) -> None:
        """Say that the daemon works."""
        if self._tell("WATCHDOG=1", *self._untold):
            self._untold = ()

    def stopping(self) -> None:
        """Say that the daemon is about to end."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def _tell(self, *lines: str) -> bool:
        """Whether the manager has taken the lines in."""
        if self._address is None:
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
                speaker.settimeout(_PATIENCE)
                speaker.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            log.debug("the service manager can't be told %s: %s", lines[0], error)
            return False
        return True


def _status(text: str) -> str:
    """The line of a status."""
    return f"STATUS={' '.join(text.split())[:_LONGEST]}"


# --- sole_process
# A lock that one process at a time holds: until it lets go of it, or ends, however that happens.

_TRIES: Final = 100  # each is in vain only if the file is removed just then


class LockHeld(Exception):
    """Another process holds the lock."""


@contextmanager
def sole_process(file: Path) -> Iterator[None]:
    """A block that no other process is in with the same `file`, an empty one that is made and stays.

    Who holds the lock may remove the file. Children that are started meanwhile don't hold it. Raises `LockHeld` at
    once, `OSError` where nothing can be locked there.
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
            with suppress(FileNotFoundError):  # removed meanwhile; then another one may lie there, too
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
# Child processes that are started together and end together; what they print is passed on line by line.

PATIENCE: Final = 1.8  # seconds for all of them to end in order; whoever stops them may count on 2
_READ_ON: Final = 0.1  # seconds for the last lines of one that has ended; a child of its own may hold the pipe


class ChildProcesses:
    """Children by name; a context manager, behind which none of them is left.

    They are in process groups of their own, so that Ctrl-C reaches the parent alone, and each is told once. For the
    main thread: on Linux children end with the thread that started them.
    """

    def __init__(self, commands: Mapping[str, Sequence[str]], tell: Callable[[str, str], None]) -> None:
        """Start them.

        Args:
            commands: by the child's name, see `common.process.machine.child_command`.
            tell: called with the name and each line that the child prints, on any thread.
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
        """Exit codes of those that have ended, negative for a signal."""
        codes = {name: process.poll() for name, process in self._processes.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def stop(self) -> None:
        """End all of them: in order, or after `PATIENCE` seconds at once. What they printed has been passed on then."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)  # nothing happens to one that has ended
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
# A sign that processes are at some work, which others can look for: it ends when the last of them does.


@contextmanager
def show_presence(file: Path) -> Iterator[None]:
    """Shows others that this process is at work, by a shared lock of `file`. The file and its folder are made.

    Several processes may be present at once. Their children are not. Where nothing can be locked, nothing is shown.
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
    """The descriptor that holds the lock; None where nothing can be locked."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # whoever looks has the lock for a moment only
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
