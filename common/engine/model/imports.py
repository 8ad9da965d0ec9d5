"""Imports what runs models, without parts that no daemon uses: they take a quarter of its seconds.

Transformers imports a solver of scipy for losses, and accelerate and torch.distributed for models on several machines,
where these are installed. Sentence-transformers imports scikit-learn for a distance that nothing here computes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from common.process.garbage import importing

_ABSENT: Final = ("scipy", "sklearn", "accelerate", "torch_distributed")  # for transformers, in this process
_HOLLOW: Final[dict[str, tuple[str, ...]]] = {
    "sklearn": (),
    "sklearn.metrics": ("pairwise_distances",),
    "scipy.sparse": ("coo_matrix",),
}


@contextmanager
def importing_models() -> Iterator[None]:
    """Import inside what uses transformers or sentence-transformers. What was left out can be imported afterwards."""
    with importing(), ExitStack() as stack:
        if "transformers.modeling_utils" not in sys.modules:
            _forget_packages()
        if "sentence_transformers" not in sys.modules:
            stack.enter_context(_hollow_modules())
        yield


def _forget_packages() -> None:
    """Have transformers take some packages for missing. It looks once, and remembers."""
    import torch
    from transformers.utils import import_utils

    kept: Any = import_utils._is_package_available, torch.distributed.is_available
    import_utils._is_package_available = lambda name, *arguments, **options: (  # type: ignore[assignment]
        (False, "N/A") if name in _ABSENT else kept[0](name, *arguments, **options)
    )
    torch.distributed.is_available = lambda: False
    try:
        for name in _ABSENT:
            with suppress(AttributeError):  # of another release, which then imports what it likes
                looked: Any = getattr(import_utils, f"is_{name}_available")
                looked.cache_clear()
                looked()
    finally:
        import_utils._is_package_available, torch.distributed.is_available = kept


@contextmanager
def _hollow_modules() -> Iterator[None]:
    """Modules that are not imported yet have their names, and nothing behind them."""
    made = [name for name in _HOLLOW if name not in sys.modules]
    for name in made:
        module = sys.modules[name] = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        for each in _HOLLOW[name]:
            setattr(module, each, _missing(f"{name}.{each}"))
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]


def _missing(name: str) -> Callable[..., Any]:
    def left_out(*_: Any, **options: Any) -> Any:
        raise NotImplementedError(f"{name} is left out of this process")

    return left_out
