"""Words that all domains share."""
