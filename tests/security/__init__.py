"""Vulnerabilities that software of this kind has had, each tried here. docs/security.md has the table."""
