"""The ZeroMQ link between the daemons; one thread owns the socket."""
