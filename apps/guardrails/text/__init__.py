"""Normalization: what a text says once folded, decoded and written plainly."""
