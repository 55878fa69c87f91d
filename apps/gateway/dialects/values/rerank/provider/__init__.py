"""Provider sides of the rerank dialects: write requests, read rankings."""
