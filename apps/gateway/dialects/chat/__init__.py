"""Chat formats: each folder is one wire format, with its client side, its provider side, or both."""
