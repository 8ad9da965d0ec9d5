"""Token trees that a small model grows and a large one verifies (EdgeLLM): the state machine of one answer. Pure."""
