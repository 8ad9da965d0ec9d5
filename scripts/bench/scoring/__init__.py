"""What document weights cost and what they do to answers."""
