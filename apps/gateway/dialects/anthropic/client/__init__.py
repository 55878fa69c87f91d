"""The client side of Anthropic's messages format: requests read, responses and errors written."""
