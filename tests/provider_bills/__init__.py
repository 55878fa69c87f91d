"""Provider bills: their APIs and files, stored lines, and the comparison with the request log."""
