"""Loading models and tokenizers, the slab KV cache and the pre-emptible decode step."""
