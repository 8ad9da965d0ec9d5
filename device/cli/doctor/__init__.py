"""`dragon doctor`, and the checks for commands only: settings files, ports, models."""
