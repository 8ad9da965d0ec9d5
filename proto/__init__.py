"""The protocol between device and cloud: message types, payload codecs, framing and limits."""
