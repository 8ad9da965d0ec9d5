"""Settings of a daemon from a file, the environment and options."""
