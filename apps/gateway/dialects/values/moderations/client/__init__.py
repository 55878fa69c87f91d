"""Client side of moderation: reads requests, writes judgements."""
