"""Sampling of one token: race noise, truncation, quantisation and the aggregation kernels."""
