"""Which models exist, who serves them, and at what price."""
