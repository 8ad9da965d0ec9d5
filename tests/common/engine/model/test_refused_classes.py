"""Classes that packed passes can't serve are refused when they are loaded, by name and with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers
from packaging.version import Version
from transformers import (
    BambaConfig,
    BartConfig,
    BartForCausalLM,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BloomConfig,
    CodeGenConfig,
    DeepseekV32Config,
    DiffLlamaConfig,
    FalconConfig,
    GPTJConfig,
    GPTNeoConfig,
    Lfm2Config,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForSequenceClassification,
    Mamba2Config,
    MambaConfig,
    MptConfig,
    PreTrainedConfig,
    Qwen3NextConfig,
    RecurrentGemmaConfig,
    RwkvConfig,
    T5Config,
    T5ForConditionalGeneration,
    XGLMConfig,
)

from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from tests.common.engine.model.tiny_models import byte_level_tokenizer, random_model

SMALLEST: dict[str, Any] = {"vocab_size": 340, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL: dict[str, Any] = SMALLEST | {"num_key_value_heads": 2, "intermediate_size": 48, "pad_token_id": 0}
LENGTH: dict[str, Any] = {"max_position_embeddings": 64}
GPT: dict[str, Any] = {"vocab_size": 340, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4}
SEQUENCES: dict[str, Any] = {
    "vocab_size": 340,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    **LENGTH,
}
LATENTS: dict[str, Any] = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "index_n_heads": 2,
    "index_head_dim": 16,
}
LINEAR: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MAMBA: dict[str, Any] = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 4, "attn_layer_indices": [1]}

STATE = "it has layers with a state .* can't be rolled back"
OWN = "has an attention of its own that can't be replaced"
BY_ITSELF = "computes masks or attention by itself"
NO_LENGTH = "states no context length .*ALiBi"
ENCODER = "is an encoder; only decoder-only"

DECODERS: list[tuple[PreTrainedConfig, str]] = [
    (MambaConfig(**{**SMALLEST, "num_attention_heads": 1}, state_size=4), f"MambaForCausalLM .*{STATE}"),
    (
        Mamba2Config(vocab_size=340, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, n_groups=1),
        f"Mamba2ForCausalLM .*{STATE}",
    ),
    (BambaConfig(**SMALL, **LENGTH, **MAMBA), f"BambaForCausalLM .*{STATE}"),
    (RecurrentGemmaConfig(**SMALL, lru_width=32), f"RecurrentGemmaForCausalLM .*{STATE}"),
    (Qwen3NextConfig(**SMALL, **LENGTH, **LINEAR), f"Qwen3NextForCausalLM .*{STATE}"),
    (Lfm2Config(**SMALL, **LENGTH, layer_types=["conv", "full_attention"]), f"Lfm2ForCausalLM .*{STATE}"),
    (
        RwkvConfig(vocab_size=340, hidden_size=32, num_hidden_layers=2, context_length=64),
        "RwkvForCausalLM .* keeps keys and values for 0 of its 2 layers",
    ),
    (
        DeepseekV32Config(**{**SMALL, "num_key_value_heads": 4}, **LENGTH, **LATENTS),
        "DeepseekV32ForCausalLM .* choose their keys by an index",
    ),
    (
        Llama4TextConfig(**SMALL, **LENGTH, attention_chunk_size=8, num_local_experts=2, intermediate_size_mlp=48),
        "Llama4ForCausalLM can't be served: .* neither all earlier tokens nor a window",
    ),
    (FalconConfig(**SMALLEST), f"FalconForCausalLM {OWN}"),
    (
        GPTNeoConfig(vocab_size=340, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global"], 2]]),
        f"GPTNeoForCausalLM {OWN}",
    ),
    # Reads a padding mask of two dimensions to make its position bias.
    (MptConfig(vocab_size=340, d_model=32, n_layers=2, n_heads=4, **LENGTH), f"MptForCausalLM .*{BY_ITSELF}"),
    (MptConfig(vocab_size=340, d_model=32, n_layers=2, n_heads=4), f"MptForCausalLM {NO_LENGTH}"),
    (BloomConfig(vocab_size=340, hidden_size=32, n_layer=2, n_head=4), f"BloomForCausalLM {NO_LENGTH}"),
    # Reshapes what the cache gives back before it attends, which can't be done to several sessions.
    (
        XGLMConfig(vocab_size=340, d_model=32, num_layers=2, attention_heads=4, ffn_dim=48),
        f"XGLMForCausalLM .*{BY_ITSELF}",
    ),
    # Splits the values in two and attends to each half.
    (DiffLlamaConfig(**SMALL, **LENGTH), f"DiffLlamaForCausalLM .*{BY_ITSELF}"),
]

# Transformers gave them its attention interface in 5.24.
SERVED_LATER = [
    (GPTJConfig(**GPT), f"GPTJForCausalLM {OWN}"),
    (CodeGenConfig(**GPT), f"CodeGenForCausalLM .*{BY_ITSELF}"),
]


def refused(model: Any, text: str, folder: Path) -> None:
    model.save_pretrained(folder)
    byte_level_tokenizer().save_pretrained(folder)
    with pytest.raises(ModelError, match=text) as caught:
        Decoder.load(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("config", "text"), DECODERS, ids=[text.split()[0] for _, text in DECODERS])
def test_decoders(config: PreTrainedConfig, text: str, tmp_path: Path) -> None:
    refused(random_model(config), text, tmp_path)


@pytest.mark.parametrize(("config", "text"), SERVED_LATER, ids=[text.split()[0] for _, text in SERVED_LATER])
def test_decoders_that_a_later_release_of_transformers_serves(
    config: PreTrainedConfig, text: str, tmp_path: Path
) -> None:
    model = random_model(config)
    if Version(transformers.__version__) < Version("5.24"):
        refused(model, text, tmp_path)
    else:
        model.save_pretrained(tmp_path)
        byte_level_tokenizer().save_pretrained(tmp_path)
        Decoder.load(str(tmp_path)).close()  # which compares its logits with those of Transformers


@pytest.mark.parametrize(
    ("kind", "config", "text"),
    [
        (
            T5ForConditionalGeneration,
            T5Config(vocab_size=340, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4),
            "T5ForConditionalGeneration is an encoder-decoder; only decoder-only",
        ),
        (BartForConditionalGeneration, BartConfig(**SEQUENCES), "BartForConditionalGeneration is an encoder-decoder"),
        # Counts positions by itself.
        (
            BartForCausalLM,
            BartConfig(**SEQUENCES),
            "BartForCausalLM can't be served: its logits in a packed pass differ",
        ),
        (BertForMaskedLM, BertConfig(**SMALLEST, intermediate_size=48), f"BertForMaskedLM {ENCODER}"),
        (BertLMHeadModel, BertConfig(**SMALLEST, intermediate_size=48), f"BertLMHeadModel {ENCODER}"),
        (
            LlamaForSequenceClassification,
            LlamaConfig(**SMALL),
            "LlamaForSequenceClassification is not a decoder-only language model",
        ),
    ],
    ids=["t5", "bart", "bart's decoder", "bert", "bert as a language model", "classifier"],
)
def test_what_is_no_decoder(kind: Any, config: PreTrainedConfig, text: str, tmp_path: Path) -> None:
    refused(kind(config), text, tmp_path)
