"""Request logs and activity: one row for each request, totals for each day."""
