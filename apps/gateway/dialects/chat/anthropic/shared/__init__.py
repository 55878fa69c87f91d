"""Anthropic Messages, both sides: names on the wire, usage and errors."""
