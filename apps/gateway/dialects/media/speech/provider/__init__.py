"""Speech dialects, provider side: one module a format."""
