"""Speech dialects, client side: reads requests, writes audio."""
