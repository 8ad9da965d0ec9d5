"""Costs of the engine per token beside the models: time, bytes, and latency on this machine."""
