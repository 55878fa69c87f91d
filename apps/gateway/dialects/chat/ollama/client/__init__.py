"""Ollama's API, client side."""
