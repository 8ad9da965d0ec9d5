"""The Session state machine: drafts, targets, roll-back and who aggregates."""
