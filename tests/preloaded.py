"""Processes whose imports are done: forked from one that has imported what daemons need, which takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib import import_module
from multiprocessing import forkserver, reduction
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from scripts.daemons import ROOT
from scripts.netlab import namespaces

IMPORTED: Final = [
    "cloud.daemon",
    "cloud.sessions",
    "device.cli.main",
    "device.daemon",
    "device.engine",
    "common.methods.aggregate.device",
    "numba",
    "sentence_transformers.models",
    "transformers.generation.utils",
    "transformers.models.bert.modeling_bert",
    "transformers.models.bert.tokenization_bert_fast",
    "transformers.models.qwen2.modeling_qwen2",
    "tests.frozen",  # the last one
]


def preloaded() -> ForkServerContext:
    """The context whose processes are forked from one with `IMPORTED`. It has run nothing and has no other thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def start_preloading() -> None:
    """Start the process to fork from, unless it runs; if a network lab needed it first, it would end with the lab."""
    preloaded()
    forkserver.ensure_running()


class Preloaded:
    """A daemon as its command runs it, without the imports; stands in for `subprocess.Popen` in `scripts.daemons`."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Run `main` of `module` with `arguments`; what it prints goes to `log`."""
        log.touch()
        self._process = _started(module, arguments, environment, log, log)

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


def run_preloaded(
    arguments: Sequence[str], environment: Mapping[str, str], timeout: float | None
) -> subprocess.CompletedProcess[str]:
    """Run a `dragon` command to its end; stands in for `run_command` of `scripts.daemons`."""
    with TemporaryDirectory() as folder:
        output, errors = (Path(folder) / name for name in ("output", "errors"))
        process = _started("device.cli.main", arguments, environment, output, errors)
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(["dragon", *arguments], timeout or 0.0)
        return subprocess.CompletedProcess(arguments, process.exitcode, output.read_text(), errors.read_text())


class _Network:
    """The network namespace of who asks for a process; that process gets a descriptor of it."""

    def __init__(self) -> None:
        self._descriptor = namespaces.current() if sys.platform == "linux" else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _inherited, (None if self._descriptor is None else reduction.DupFd(self._descriptor),)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def _inherited(sent: Any) -> int | None:
    descriptor: int | None = None if sent is None else sent.detach()
    return descriptor


def _started(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], output: Path, errors: Path
) -> BaseProcess:
    with closing(_Network()) as network:
        work = (network, module, list(arguments), dict(environment), output, errors)
        # As a daemonic one it ends with the tests, however they end.
        process = preloaded().Process(target=_main, args=work, daemon=True)
        process.start()
    return process


def _main(
    network: int | None, module: str, arguments: list[str], environment: dict[str, str], output: Path, errors: Path
) -> None:
    if network is not None:
        _enter(network)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    with output.open("ab") as told, errors.open("ab") as complained, open(os.devnull, "rb") as nothing:
        for descriptor, file in enumerate((nothing, told, complained)):
            os.dup2(file.fileno(), descriptor)
    sys.argv = [module, *arguments]
    import_module(module).main()


def _enter(network: int) -> None:
    """Enter the namespace unless this process is in it; elsewhere is only who was asked for in the network lab."""
    here = namespaces.current()
    if not os.path.sameopenfile(network, here):
        namespaces.enter(network)
    os.close(here)
    os.close(network)
