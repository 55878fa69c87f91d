"""Calls of tools at MCP servers that an organization registered: listings, guardrails and records."""
