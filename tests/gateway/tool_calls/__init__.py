"""Tests of calls of tools at registered servers."""
