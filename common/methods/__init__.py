"""Decoding methods: a package each, with options, device half, cloud half and report."""
