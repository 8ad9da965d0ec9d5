"""Findings about a side of this machine, right or wrong, each with what to do."""
