"""Child processes that are started together and end together; what they print is passed on line by line."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from common.process.python import python_environment

PATIENCE: Final = 1.8  # seconds for all of them to end in order; whoever stops them may count on 2
_READ_ON: Final = 0.1  # seconds for the last lines of one that has ended; a child of its own may hold the pipe


class Together:
    """Children by name; a context manager, behind which none of them is left.

    They are in process groups of their own, so that Ctrl-C reaches the parent alone, and each is told once. For the
    main thread: on Linux children end with the thread that started them.
    """

    def __init__(self, commands: Mapping[str, Sequence[str]], tell: Callable[[str, str], None]) -> None:
        """Start them.

        Args:
            commands: by the child's name, see `common.process.python.child_command`.
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
