"""The library: how fast it embeds, and whether it finds the right document."""
