"""Speech dialects, client side: reads requests, writes sound."""
