"""Fuzzing of every decoder of the wire: `python -m scripts.fuzz [NAME] [--seconds N]`."""
