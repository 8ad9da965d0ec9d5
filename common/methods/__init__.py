"""Decoding methods, a package each: options, device half, cloud half, report."""
