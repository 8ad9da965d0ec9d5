"""Every figure and table that this project compares with, made small, each beside the paper's own number."""
