"""Canonical model: the provider-neutral request, events and reply that every dialect reads into and writes from. Pure:
no Django, no network, no store, no wire format."""
