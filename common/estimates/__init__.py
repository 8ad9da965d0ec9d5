"""Estimates of times, links and acceptance, and the choice of the aggregator."""
