"""Speculative sampling by rejection over the network: dsd, dssd, qsv."""
