"""OpenAI Chat Completions, client side: reads requests, writes replies, streams and errors."""
