"""Limits of organizations on usage: whose requests count, in which window of time, and how much at most."""
