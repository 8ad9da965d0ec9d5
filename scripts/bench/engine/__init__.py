"""What the engine costs per token beside the models: time, bytes, and latency on this machine."""
