"""Anthropic Messages, provider side: writes requests, reads answers and failures."""
