"""Hostile clients and providers against the running product, and what its other clients notice of them."""
