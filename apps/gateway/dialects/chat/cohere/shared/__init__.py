"""Cohere Chat v2: names on the wire and usage."""
