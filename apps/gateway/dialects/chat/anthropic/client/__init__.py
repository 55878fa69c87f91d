"""Anthropic Messages, client side: reads requests, writes replies, streams and errors."""
