"""OpenAI Responses, client side: reads requests, writes answers and errors."""
