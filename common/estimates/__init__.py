"""Estimates of times, links and acceptance, and who aggregates by them."""
