"""OpenAI Responses: names on the wire and usage."""
