"""The models of tests/common/engine/model, for what becomes of their keys and values."""

from tests.common.engine.model.conftest import llama, one_thread, pair

__all__ = ["llama", "one_thread", "pair"]
