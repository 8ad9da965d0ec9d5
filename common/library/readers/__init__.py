"""Readers of document formats: turn a file's content into sections of text."""
