"""Measurements: the gateway beside its own upstream, in one run."""
