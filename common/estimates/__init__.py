"""Estimates of times, links and acceptance, and aggregator choice."""
