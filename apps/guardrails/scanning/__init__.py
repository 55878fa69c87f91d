"""Scanning: texts and files checked against compiled rules, whole or as a stream."""
