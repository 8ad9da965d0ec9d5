"""The attention functions that Transformers models call on our caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from common.engine.model.errors import ModelError
from common.engine.model.packed import Expand
from common.engine.model.reach import reach_mask
from common.engine.model.scores import Scores

PACKED_ATTENTION = "dragon_packed"
PROBED_ATTENTION = "dragon_probed"  # the same, where models are to make masks: they say how far layers look back
PLAIN_ATTENTION = "eager"  # the one that every class writes out itself, with whatever is peculiar to it

# What other attention functions are handed to change scores or choose keys; others that matter, the check finds.
_NOT_SERVED = {"position_bias": "adds a bias by distance to its scores", "indices": "chooses its keys by an index"}


class HeldStates(Protocol):
    """The stand-in for keys and values that a cache of ours gives a layer."""

    def expanded(self, expand: Expand) -> tuple[HeldStates, HeldStates]:
        """The same, of a layer that keeps latents, of which `expand` makes keys and values."""
        ...

    def attend(self, query: Tensor, scores: Scores, mask: Tensor | None) -> Tensor:
        """Attention of `query` `[1, heads, tokens, dim]`, `[1, tokens, heads, value_dim]`; `mask` is the model's."""
        ...


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor | HeldStates,
    value: Tensor | HeldStates,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of `query` `[1, heads, tokens, dim]` over what our cache's `update` gave back.

    The result is `[1, tokens, heads, dim]`. Keys that are tensors belong to a pass without a cache. Raises `ModelError`
    for an attention that packed passes don't know.
    """
    if isinstance(key, Tensor):
        if not isinstance(value, Tensor):
            raise TypeError("keys and values must belong to the same pass")
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    for name, meaning in _NOT_SERVED.items():
        if kwargs.get(name) is not None:
            raise ModelError(f"{type(module).__name__} {meaning} ({name}), which packed passes can't")
    return key.attend(query, Scores(scaling, softcap, s_aux), attention_mask), None


def register_packed_attention() -> str:
    """Make `packed_attention` known to Transformers and give its name. Calling it again changes nothing.

    Transformers builds no masks for a name that only the attention interface knows.
    """
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    AttentionInterface.register(PROBED_ATTENTION, packed_attention)
    AttentionMaskInterface.register(PROBED_ATTENTION, reach_mask)
    return PACKED_ATTENTION


@contextmanager
def attention_of(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Let all parts of a model use the attention `name` meanwhile."""
    configs = {id(part.config): part.config for part in model.modules() if isinstance(part, PreTrainedModel)}
    before = [(config, config._attn_implementation) for config in configs.values()]
    try:
        for config, _ in before:
            config._attn_implementation = name
        yield
    finally:
        for config, former in before:
            config._attn_implementation = former


def keep_latents(model: nn.Module) -> None:
    """Let layers with latent attention (DeepSeek's) take their keys and values from our caches, which hold latents."""
    for module in model.modules():
        expand = getattr(module, "expand_kv", None)
        if callable(expand):
            setattr(module, "expand_kv", _deferred(expand))  # noqa: B010 - mypy takes attributes for parts of modules


def _deferred(expand: Expand) -> Callable[..., Any]:
    def expand_kv(keys: Any, values: Any) -> Any:
        return expand(keys, values) if isinstance(keys, Tensor) else keys.expanded(expand)

    return expand_kv
