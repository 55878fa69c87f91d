"""Image generation, client side: reads requests, writes replies and errors."""
