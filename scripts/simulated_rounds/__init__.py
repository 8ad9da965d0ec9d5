"""Rounds of drafting and verifying under a virtual clock: for training and for predictions."""
