"""Provider sides of the moderation dialects: write requests, read judgements."""
