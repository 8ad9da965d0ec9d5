"""Checks a model's configuration before loading: only decoders with attention are supported."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from torch import nn
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicSlidingWindowLayer
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.quantizers.auto import AutoHfQuantizer

from common.engine.model.errors import ModelError
from common.engine.model.imports import quiet_loading

_GENERATIVE = ("ForCausalLM", "LMHeadModel")  # endings of class names

# Layers by the cache that Transformers would make for them. A dummy uses another layer's keys.
_SERVED_LAYERS = frozenset({"DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer"})  # in `transformers.cache_utils`
_REASONS = {  # by a part of the name
    "Linear": "it has layers with a state (state space, convolution or linear attention), which can't be rolled back",
    "Indexed": "it has layers that choose their keys by an index (sparse attention)",
}


def check_architecture(name: str, config: PreTrainedConfig) -> None:
    """Raises `ModelError` unless `config` is a decoder with attention in every layer.

    Its weights must also be stored in a readable form.
    """
    known, what = config.architectures or [], class_of(config)
    if config.is_encoder_decoder:
        raise ModelError(f"{name}: {what} is an encoder-decoder; only decoder-only language models are supported")
    if _is_encoder(config):
        raise ModelError(f"{name}: {what} is an encoder; only decoder-only language models are supported")
    if known and not any(architecture.endswith(_GENERATIVE) for architecture in known):
        raise ModelError(f"{name}: {what} is not a decoder-only language model (a class named ...ForCausalLM)")
    try:
        layers = DynamicCache(config=config).layers
    except Exception as error:  # wrong values in a configuration raise any error
        told = " ".join(str(error).split())
        raise ModelError(f"{name}: {what} describes no attention layers ({told})") from error
    for kind in sorted({type(layer).__name__ for layer in layers} - _SERVED_LAYERS):
        reason = next((reason for part, reason in _REASONS.items() if part in kind), f"its cache is a {kind}")
        raise ModelError(
            f"{name}: {what} can't be served: {reason}; only models with attention to all earlier tokens, or to a"
            " window of the last ones, are supported"
        )
    _check_quantisation(name, config)


def _check_quantisation(name: str, config: PreTrainedConfig) -> None:
    described: Any = getattr(config, "quantization_config", None)
    described = described or getattr(config.get_text_config(), "quantization_config", None)
    if not described:
        return
    try:
        with quiet_loading():
            # Transformers' own checks before it reads weights: a known method, and its requirements.
            quantiser = AutoHfQuantizer.from_config(copy.deepcopy(described), pre_quantized=True)
            quantiser.validate_environment(device_map=None, weights_only=True)
    except Exception as error:  # settings of many methods, with any values
        method = described.get("quant_method") if isinstance(described, dict) else None
        raise ModelError(
            f"{name}: its weights are quantised as {method or 'nobody says'}, which dragon does not read: use the "
            "plain safetensors, or a .gguf file"
        ) from error


def check_places(name: str, model: nn.Module, tensors: Iterable[str]) -> None:
    """Raises `ModelError` if a module with weights lacks a stored tensor's parameter.

    Examples are a bias that the configuration lacks, or scales of quantised numbers. As in Transformers, tensors of
    missing modules are ignored.
    """
    places = {part: _own_tensors(module) for part, module in model.named_modules()}
    lost = sorted(
        tensor
        for tensor in tensors
        for part, _, own in [tensor.rpartition(".")]
        if places.get(part) and own not in places[part]
    )
    if lost:
        raise ModelError(
            f"{name}: {', '.join(lost[:3])} ({len(lost)} in all) would not be used; the checkpoint belongs to another"
            " configuration"
        )


def _own_tensors(module: nn.Module) -> set[str]:
    weights = {name for name, _ in module.named_parameters(recurse=False)}
    return weights | {name for name, _ in module.named_buffers(recurse=False)} if weights else set()


def class_of(config: PreTrainedConfig) -> str:
    return ", ".join(config.architectures or []) or str(config.model_type)


def _is_encoder(config: PreTrainedConfig) -> bool:
    """Some classes are decoders only if `is_decoder` says so."""
    return getattr(config, "is_decoder", None) is False and config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def shortest_window(config: PreTrainedConfig) -> int:
    """The shortest declared window in tokens, or 0."""
    layers = DynamicCache(config=config).layers
    return min((layer.sliding_window for layer in layers if isinstance(layer, DynamicSlidingWindowLayer)), default=0)


def max_context(name: str, config: PreTrainedConfig) -> int:
    """Most tokens of a row. Raises `ModelError` if the configuration lacks it.

    LongRoPE changes all rotations when a row passes its original training length. Kept keys would then be wrong, so
    rows end there.
    """
    text = config.get_text_config()
    maximum = getattr(text, "max_position_embeddings", None)
    if not isinstance(maximum, int):
        raise ModelError(
            f"{name}: {class_of(config)} states no context length (max_position_embeddings); models without one, such"
            " as those with biases by distance (ALiBi), can't be served"
        )
    rotations: Any = getattr(text, "rope_parameters", None) or {}
    by_layer = [part for part in rotations.values() if isinstance(part, dict)] or [rotations]
    changes = [part.get("original_max_position_embeddings") for part in by_layer if part.get("rope_type") == "longrope"]
    return min([maximum, *(length for length in changes if isinstance(length, int))])
