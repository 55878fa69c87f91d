"""Doors for operators and scripts."""
