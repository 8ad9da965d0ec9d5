"""The models of tests/common/engine/model, for what becomes of their keys and values."""

from tests.common.engine.model.conftest import llama, nothing_read_before, one_thread, pair

__all__ = ["llama", "nothing_read_before", "one_thread", "pair"]
