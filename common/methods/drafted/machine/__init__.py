"""The state machines of drafting and verifying: one on each side of an answer. Pure."""
