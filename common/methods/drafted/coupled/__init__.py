"""Coupled drafting: drafter and verifier race on the same noise, so that token ids are all that travels."""
