"""The `dragon` command."""
