"""Bedrock Converse: names on the wire and usage."""
