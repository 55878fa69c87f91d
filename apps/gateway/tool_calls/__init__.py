"""Calls of tools at MCP servers that an organization registered: what is listed, what may pass, what is recorded."""
