"""Kinds of personal data that can be told by their form: one file a kind.

A kind is a `Sought`: a pattern for candidates and a check that tells them from look-alikes: a checksum, a range,
a form that nothing else has, or the word beside it that says what it is. Must never know a rule or an
organization.
"""
