"""`dragon service`: a daemon that the system starts, watches and starts again."""
