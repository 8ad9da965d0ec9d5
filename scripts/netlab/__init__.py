"""The network lab: both daemons in network namespaces of their own, joined by an emulated link."""
