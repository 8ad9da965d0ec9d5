"""A process and what belongs to it: threads, children, private files, log."""
