"""Findings: the values that a scan takes and returns, and redaction by them."""
