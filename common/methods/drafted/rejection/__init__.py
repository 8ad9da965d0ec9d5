"""Speculative sampling between device and cloud: proposals are accepted or drawn again (DSD, DSSD, quantise-sample)."""
