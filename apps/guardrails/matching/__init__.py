"""Matching: multi-pattern search, stemming, attack signals and the mention filter."""
