"""A toy method: the two sides take turns, each deciding some tokens from its own documents.

It shows all that a method consists of, and nothing else; docs/contributing.md walks through it.
"""
