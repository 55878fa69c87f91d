"""Provider bills: what providers state of usage and cost, kept and compared with the request log."""
