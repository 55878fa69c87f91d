"""Rules that hold for the text of the whole repository."""
