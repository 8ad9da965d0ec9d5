"""Small configurations of classes that are served, with windows that are much shorter than the rows of the tests.

Weights are drawn wide, so that attention and positions change the logits.
"""

from __future__ import annotations

from typing import Any

from transformers import (
    Cohere2Config,
    CohereConfig,
    DeepseekV3Config,
    Gemma2Config,
    Gemma3nTextConfig,
    Gemma3TextConfig,
    Gemma4TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Olmo3Config,
    OPTConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
    StableLmConfig,
    Starcoder2Config,
)

WINDOW = 6  # tokens; rows have 4 to 240
CONTEXT = 256
_ENDS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
_FULL, _SLIDING = "full_attention", "sliding_attention"
_MIXED: dict[str, Any] = {"sliding_window": WINDOW, "layer_types": [_SLIDING, _FULL, _SLIDING]}


def _sizes(vocabulary: int, **others: Any) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.3,
        **_ENDS,
        **others,
    }


def configuration(family: str, vocabulary: int) -> PreTrainedConfig:
    """The configuration of `family`."""

    def made(kind: type[PreTrainedConfig], **others: Any) -> PreTrainedConfig:
        return kind(**_sizes(vocabulary, **others))

    match family:
        case "llama":
            return made(LlamaConfig)
        case "qwen2":
            return made(Qwen2Config, num_key_value_heads=4)
        case "wide":
            return made(Qwen2Config, num_key_value_heads=4, hidden_size=16, num_hidden_layers=2)
        case "opt":
            sizes = {"word_embed_proj_dim": 32, "ffn_dim": 64, "init_std": 0.3}
            return made(OPTConfig, **sizes)
        case "gpt2":
            return made(GPT2Config, n_embd=32, n_layer=3, n_head=4, n_inner=48, n_positions=CONTEXT)
        case "gpt-neox":
            return made(GPTNeoXConfig)
        case "stablelm":
            return made(StableLmConfig)
        case "granite":
            return made(GraniteConfig, attention_multiplier=0.4, residual_multiplier=0.7, embedding_multiplier=1.5)
        case "cohere":
            return made(CohereConfig, logit_scale=1.0)
        case "olmo2":
            return made(Olmo2Config)
        case "qwen3":
            return made(Qwen3Config, head_dim=16)
        case "smollm3":  # every other layer knows no positions, and the rest have windows
            return made(
                SmolLM3Config,
                no_rope_layers=[1, 0, 1],
                use_sliding_window=True,
                sliding_window=WINDOW,
                layer_types=[_SLIDING, _FULL, _SLIDING],
            )
        case "mistral":
            return made(MistralConfig, sliding_window=WINDOW)
        case "mixtral":
            return made(MixtralConfig, sliding_window=WINDOW, num_local_experts=4, num_experts_per_tok=2)
        case "phi3":
            return made(Phi3Config, sliding_window=WINDOW)
        case "starcoder2":
            return made(Starcoder2Config, sliding_window=WINDOW)
        case "qwen2-mixed":
            return made(Qwen2Config, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)
        case "qwen3-mixed":
            return made(Qwen3Config, use_sliding_window=True, head_dim=16, max_window_layers=1, **_MIXED)
        case "olmo3":
            return made(Olmo3Config, **_MIXED)
        case "cohere2":
            return made(Cohere2Config, logit_scale=1.0, head_dim=8, **_MIXED)
        case "gemma2":  # scores are capped low enough to be bent
            caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 20.0}
            return made(Gemma2Config, head_dim=8, query_pre_attn_scalar=5, **caps, **_MIXED)
        case "gemma3":  # layers with a window turn positions otherwise than the others
            turns = {_SLIDING: {"rope_type": "default", "rope_theta": 100.0}}
            turns[_FULL] = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 8.0}
            return made(Gemma3TextConfig, head_dim=8, query_pre_attn_scalar=5, rope_parameters=turns, **_MIXED)
        case "gemma3n":  # the last layers read the keys of earlier ones
            return made(
                Gemma3nTextConfig,
                num_hidden_layers=5,
                head_dim=8,
                sliding_window=WINDOW,
                layer_types=[_SLIDING, _SLIDING, _FULL, _SLIDING, _FULL],
                num_kv_shared_layers=2,
                hidden_size_per_layer_input=8,
                vocab_size_per_layer_input=vocabulary,
                laurel_rank=8,
                activation_sparsity_pattern=[0.0] * 5,
            )
        case "gemma4":  # keys of two sizes
            layers = {"sliding_window": WINDOW, "layer_types": [_SLIDING, _SLIDING, _FULL]}
            inputs = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": vocabulary}
            return made(Gemma4TextConfig, head_dim=8, global_head_dim=16, **inputs, **layers)
        case "gpt-oss":  # a sink in every head
            return made(GptOssConfig, head_dim=8, num_local_experts=4, num_experts_per_tok=2, **_MIXED)
        case "deepseek-v3":  # keeps latents
            return made(
                DeepseekV3Config,
                num_key_value_heads=4,
                q_lora_rank=16,
                kv_lora_rank=16,
                qk_rope_head_dim=8,
                qk_nope_head_dim=8,
                v_head_dim=12,
                first_k_dense_replace=1,
                n_routed_experts=4,
                num_experts_per_tok=2,
                moe_intermediate_size=16,
                n_group=1,
                topk_group=1,
            )
    raise ValueError(f"no configuration of {family}")


FULL = ("llama", "qwen2", "opt", "gpt2", "gpt-neox", "stablelm", "granite", "cohere", "olmo2", "qwen3", "deepseek-v3")
WINDOWED = ("mistral", "mixtral", "phi3", "starcoder2")
MIXED = (
    "smollm3",
    "qwen2-mixed",
    "qwen3-mixed",
    "olmo3",
    "cohere2",
    "gemma2",
    "gemma3",
    "gemma3n",
    "gemma4",
    "gpt-oss",
)
