"""The wire between a device and a cloud: message types, payload codecs, framing and limits."""
