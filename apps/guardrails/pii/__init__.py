"""Kinds of personal data (PII) that their form gives away: one file for each kind.

Each holds `PATTERNS` (`CandidatePattern`): a pattern finds candidates, and a check tells them from look-alikes, by a
checksum, a range, a form that nothing else has, or a keyword beside it.
"""
