"""The same Session under a virtual clock, with simulated links and decoders."""
