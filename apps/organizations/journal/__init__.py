"""Journal: the audit log, and answers kept for idempotency keys."""
