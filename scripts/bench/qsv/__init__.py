"""Quantise, sample, verify: what the order costs in answers, and what it brings in tokens per second."""
