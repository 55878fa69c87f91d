"""Destinations: addresses of organizations that the gateway delivers to. Their columns, calls and retries, for all
kinds; log sinks and alert destinations build the messages."""
