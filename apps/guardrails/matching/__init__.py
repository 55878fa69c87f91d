"""Matching: how words, phrases, patterns and signs of an attack are found in a text."""
