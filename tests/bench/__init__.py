"""The bench: what its figures are computed by."""
