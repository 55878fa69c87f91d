"""What both sides of OpenAI's Responses format share: names on the wire and usage."""
