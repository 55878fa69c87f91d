"""Alerts: rules of an organization over its money, limits, answers and integrations, and the messages they send."""
