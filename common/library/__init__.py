"""A side's library: ingestion, chunking, embedding, the vector index and search."""
