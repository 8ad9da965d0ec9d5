"""Access to the HTTP interface: API keys and TLS files, for the daemon and for commands."""
