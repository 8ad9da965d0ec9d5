"""Processes whose imports are done: forked from one that has imported what daemons need, which takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

IMPORTED: Final = ["cloud.daemon", "device.daemon", "device.cli.main", "sentence_transformers", "torch"]


def preloaded() -> ForkServerContext:
    """The context whose processes are forked from one with `IMPORTED`. It has run nothing and has no other thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


class Preloaded:
    """A daemon as its command runs it, without the imports; stands in for `subprocess.Popen` in `scripts.daemons`."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Run `main` of `module` with `arguments`; what it prints goes to `log`."""
        log.touch()
        work = (module, list(arguments), dict(environment), log)
        # As a daemonic one it ends with the tests, however they end.
        self._process: BaseProcess = preloaded().Process(target=_main, args=work, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired([self._process.name], timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _main(module: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with log.open("ab") as output, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
    sys.argv = [module, *arguments]
    import_module(module).main()
