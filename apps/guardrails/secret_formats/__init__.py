"""Forms that secrets have: one file a family.

A form is a `Sought`: a pattern for candidates and a check that tells them from placeholders and look-alikes. The
forms are what the issuers document. Must never know a rule or an organization.
"""
