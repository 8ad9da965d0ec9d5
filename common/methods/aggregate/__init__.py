"""Aggregation of two drafts per token, one from each side's documents: speculatively, or token by token."""
