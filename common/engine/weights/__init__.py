"""Weights of a model larger than its memory budget: what stays, and what is read layer by layer from its files."""
