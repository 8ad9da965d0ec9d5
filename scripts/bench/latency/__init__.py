"""Latency of every decoding method on an emulated link (DRAGON Fig. 6 and 7, and this project's aims)."""
