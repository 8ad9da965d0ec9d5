"""The device daemon: its role, its HTTP interface and the command line."""
