"""Pages as a person sees them, in a real browser."""
