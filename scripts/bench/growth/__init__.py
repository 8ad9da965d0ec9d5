"""What grows with the work: documents, context, answer length, library, vocabulary."""
