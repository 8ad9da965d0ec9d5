"""Findings about a side of this machine, right or wrong, with remedies."""
