"""Length and fineness of a drafter's proposals: decisions, estimates, times. Pure."""
