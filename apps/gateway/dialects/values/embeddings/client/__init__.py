"""Client sides of the embedding dialects: read requests, write vectors."""
