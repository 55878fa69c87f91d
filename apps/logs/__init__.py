"""What happened: one row a request, one row a day."""
