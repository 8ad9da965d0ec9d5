"""EdgeLLM: a small model on the device drafts trees, a larger one there verifies each in one pass."""
