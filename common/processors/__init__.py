"""Processors of the next token's distribution, equal on both sides."""
