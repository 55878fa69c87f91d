"""Proofs: what has to hold whatever happens, tried on models, in simulations and on the running product."""
