"""Sequence-wise aggregation: each side answers from its own documents, one answer is taken (DRDG/SW, §7.1)."""
