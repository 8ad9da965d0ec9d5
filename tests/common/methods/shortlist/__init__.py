"""A toy of the kind that drafts and verifies: runners-up travel with the drafts, and a verdict points at one of them.

It shows what is left to bring where `common/methods/drafted/` has the rounds; docs/contributing.md walks through it.
"""
