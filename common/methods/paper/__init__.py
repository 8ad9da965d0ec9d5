"""Methods of the DRAGON paper beside speculative aggregation: token-wise, sequence-wise, and documents that travel."""
