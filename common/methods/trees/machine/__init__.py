"""The state machine of an answer by token trees, and how they grow (EdgeLLM). Pure."""
