"""What both sides of Anthropic's messages format share: names on the wire and usage."""
