"""Length and resolution of proposals: policies, estimates, times."""
