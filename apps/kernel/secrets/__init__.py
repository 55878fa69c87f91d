"""Secrets: encryption, re-encryption with new keys, and redaction."""
