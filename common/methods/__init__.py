"""Decoding methods: a room for each, with its options, the device's half, the cloud's half, its part of the report."""
