"""The demonstration: two daemons on this machine answer questions that neither library answers alone."""
