"""The client's side of a request: its HTTP request, its connection, its session."""
