"""Tests of `/mcp`."""
