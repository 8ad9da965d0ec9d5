"""The network lab: both daemons, joined by an emulated link."""
