"""Payload codecs: distributions, a document's keys and values, spans."""
