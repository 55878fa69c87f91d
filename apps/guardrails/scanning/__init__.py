"""Scanning: texts and files held against compiled rules, whole or as a stream."""
