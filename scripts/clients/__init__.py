"""Clients that people use, unmodified, against real daemons."""
