"""The package `dragon_runtime` of an installation, with proto, common, device and cloud inside (see `setup.py`).

Theirs are the names by which they import each other. So nothing here is to be imported: `dragon` and
`python -m dragon_runtime` are the ways in.
"""
