"""Costs of document weights, and their effect on answers."""
