"""Cohere Chat v2, provider side: writes requests, reads answers and failures."""
