"""Upstream: calling providers over HTTP, with retries, fallback and hedging."""
