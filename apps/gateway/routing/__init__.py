"""Routing: which providers could answer, how they rank, and what their recent past says of them."""
