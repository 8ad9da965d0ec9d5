"""Coupled drafting: both sides race on shared noise, so only tokens are sent."""
