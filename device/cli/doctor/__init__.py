"""`dragon doctor`, and the facts that only a command can gather: settings as they are read, ports, models."""
