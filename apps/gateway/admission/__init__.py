"""Admission: limits, credits and the reservation of what a request may cost at most."""
