"""Speculative sampling by rejection over the network: dsd, dssd, and quantise-sample-verify."""
