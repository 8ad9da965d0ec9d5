"""Index codes of a lattice of distributions: a number for every way to share a number of units among a vocabulary."""
