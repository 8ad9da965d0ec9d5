"""Codecs of what messages carry behind their fields: distributions, a document's keys and values, spans."""
