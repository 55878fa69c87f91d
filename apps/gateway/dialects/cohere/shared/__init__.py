"""What both sides of Cohere's chat share: names on the wire and usage."""
