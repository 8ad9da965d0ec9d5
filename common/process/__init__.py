"""Processes: threads, children, private files, logs."""
