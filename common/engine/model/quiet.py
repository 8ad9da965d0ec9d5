"""Loads Transformers models without terminal output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Hides Transformers' progress bar and its report of mismatched names.

    `loading.check_weights` reads that report instead.
    """
    from transformers.utils import logging

    shown: Any = logging  # its functions are not annotated
    bar, level = shown.is_progress_bar_enabled(), shown.get_verbosity()
    shown.disable_progress_bar()
    shown.set_verbosity_error()
    try:
        yield
    finally:
        shown.set_verbosity(level)
        if bar:
            shown.enable_progress_bar()
