"""How long, and how finely, a drafter drafts before it asks its verifier: decisions, estimates, times. Pure."""
