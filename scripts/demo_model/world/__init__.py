"""The synthetic world that the demonstration model lives in: invented names, relations, documents, questions,
libraries."""
