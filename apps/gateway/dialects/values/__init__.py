"""Formats of requests that are answered with values: embeddings, rankings, moderations."""
