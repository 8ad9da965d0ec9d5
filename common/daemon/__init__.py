"""The threads and queues that drive sessions in a daemon."""
