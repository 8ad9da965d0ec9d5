"""Training of the policy that decides how long and how finely to draft."""
