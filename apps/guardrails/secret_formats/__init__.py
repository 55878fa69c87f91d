"""Formats of secrets: one file for each family.

Each holds `PATTERNS` (`CandidatePattern`): a pattern finds candidates, and a check tells them from placeholders and
look-alikes. The formats are those that the issuers document.
"""
