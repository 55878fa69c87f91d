"""Provider sides of the embedding dialects: write requests, read vectors."""
