"""Official clients, unchanged, against the running product."""
