"""Tests of registered MCP servers."""
