"""Sampling of one token: noise, truncation, quantisation, aggregation."""
