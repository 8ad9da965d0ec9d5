"""`dragon doctor`, and the checks that only a command makes: of settings as they are read, ports, models."""
