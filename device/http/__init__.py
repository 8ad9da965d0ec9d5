"""The device daemon's OpenAI-compatible HTTP interface."""
