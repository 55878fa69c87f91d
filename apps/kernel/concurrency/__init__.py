"""Concurrency: threads beside the event loop, single flights, caches, background greenlets."""
