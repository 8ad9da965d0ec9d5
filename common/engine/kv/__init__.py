"""Keys and values of documents and running answers, and their memory."""
