"""The synthetic world of the demonstration model: invented names, relations, documents, questions, libraries."""
