"""Aggregation of two drafts per token, one per side: speculative, or token by token."""
