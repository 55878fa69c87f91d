"""Limits: windows, counters, admission, the API."""
