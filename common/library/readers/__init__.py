"""Readers of document formats: a file's content becomes text in stretches that know their place."""
