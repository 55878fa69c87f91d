"""The client side of OpenAI's chat completions format: requests read, responses and errors written."""
