"""Imports model libraries without unused parts, in half of the time.

Transformers imports torch's compiler, a scipy solver for losses, and support for several machines.
Sentence-transformers imports scikit-learn for a distance. Nothing here compiles, trains or uses them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from common.process.machine import importing

_PACKAGE: Final = "transformers"
# Its modules imported while the compiler is left out.
_IMPORTED: Final = ("modeling_utils", "masking_utils", "generation.utils", "models.auto.modeling_auto")
_ABSENT: Final = ("scipy", "sklearn", "torch_distributed")  # hidden from transformers in this process
_COMPILER: Final = "torch._dynamo"
_MARKS: Final = ("disable", "allow_in_graph")  # of `torch.compiler`
# Modules and the names that sentence-transformers imports from them.
_UNUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "sklearn": (),
    "sklearn.metrics": ("pairwise_distances",),
    "scipy.sparse": ("coo_matrix",),
}

log = logging.getLogger(__name__)


@contextmanager
def importing_models() -> Iterator[None]:
    """Wraps imports of transformers or sentence-transformers. Omitted parts stay importable afterwards."""
    with importing():
        if not any(f"{_PACKAGE}.{name}" in sys.modules for name in _IMPORTED):
            _import_transformers()
        with _hollow({name: dict.fromkeys(names, _left_out) for name, names in _UNUSED.items()}):
            yield


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Hides Transformers' progress bar and its report of mismatched names.

    `loading.check_weights` reads that report instead.
    """
    from transformers.utils import logging as told

    shown: Any = told  # its functions are not annotated
    bar, level = shown.is_progress_bar_enabled(), shown.get_verbosity()
    shown.disable_progress_bar()
    shown.set_verbosity_error()
    try:
        yield
    finally:
        shown.set_verbosity(level)
        if bar:
            shown.enable_progress_bar()


def _import_transformers() -> None:
    import torch

    _forget_packages()
    compiler: Any = torch.compiler
    marks = {name: getattr(compiler, name) for name in _MARKS}
    try:
        for name in _MARKS:
            setattr(compiler, name, _unmarked)
        with without_compiler():
            for name in _IMPORTED:
                import_module(f"{_PACKAGE}.{name}")
    except Exception as error:  # another release needs more of the compiler
        log.debug("all of transformers is imported: %s", error)
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]
    finally:
        for name, mark in marks.items():
            setattr(compiler, name, mark)


@contextmanager
def without_compiler() -> Iterator[None]:
    """Keeps torch from importing its compiler only to mark a function."""
    import torch

    with _hollow({_COMPILER: {}}, Path(torch.__path__[0]).parent):
        yield


def _forget_packages() -> None:
    """Makes transformers treat some packages as missing. It looks once, and remembers."""
    import torch
    from transformers.utils import import_utils

    looking: Any = import_utils
    distributed: Any = torch.distributed
    kept = looking._is_package_available, distributed.is_available
    looking._is_package_available = lambda name, *arguments, **options: (
        (False, "N/A") if name in _ABSENT else kept[0](name, *arguments, **options)
    )
    distributed.is_available = lambda: False
    try:
        for name in _ABSENT:
            with suppress(AttributeError):  # another release, which then imports them
                looked = getattr(looking, f"is_{name}_available")
                looked.cache_clear()
                looked()
    finally:
        looking._is_package_available, distributed.is_available = kept


@contextmanager
def _hollow(modules: Mapping[str, Mapping[str, Any]], root: Path | None = None) -> Iterator[None]:
    """Provides missing modules with these names; any other name is a mark. They have no code.

    Parts of a package below `root` can be imported.
    """
    made = [name for name in modules if name not in sys.modules]
    for name in made:
        module: Any = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = [] if root is None else [str(root.joinpath(*name.split(".")))]
        module.__getattr__ = _mark
        vars(module).update(modules[name])
        _place(name, module)
    try:
        yield
    finally:
        for name in made:
            _place(name, None)


def _place(name: str, module: ModuleType | None) -> None:
    """None removes a module."""
    above, _, last = name.rpartition(".")
    if module is not None:
        sys.modules[name] = module
        if above in sys.modules:
            setattr(sys.modules[above], last, module)
        return
    del sys.modules[name]
    if above in sys.modules:
        with suppress(AttributeError):
            delattr(sys.modules[above], last)


def _mark(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _unmarked


def _unmarked(function: Any = None, *_: Any, **options: Any) -> Any:
    return _unmarked if function is None else function


def _left_out(*_: Any, **options: Any) -> Any:
    raise NotImplementedError("this is left out of the process: common/engine/model/imports.py")
