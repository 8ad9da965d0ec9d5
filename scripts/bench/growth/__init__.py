"""Costs that grow with the work: documents, context, answer length, library, vocabulary."""
