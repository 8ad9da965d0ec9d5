"""Traces of a request: its time by activity, on both sides and between them."""
