"""The session: the state machine of an answer that both sides decide together. Pure."""
