"""Capabilities of models and formats: the facts that data files may state, as each format declares them."""
