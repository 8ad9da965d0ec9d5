"""Codecs of the distribution that a draft carries: `race`, `top-p` and `raw`."""
