"""Draft and verify: the device's small model proposes tokens, the cloud's larger model decides."""
