"""Processors of the next token's distribution: biases, penalties, formats, truncation. Both sides have the same."""
