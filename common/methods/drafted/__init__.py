"""Draft and verify: the device's small model proposes, the cloud's larger model decides."""
