"""Tests of encryption and redaction."""
