"""What both sides of OpenAI's chat completions format share: names on the wire and usage."""
