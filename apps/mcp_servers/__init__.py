"""MCP servers that organizations register: who they are, who may use them, and the client that asks them."""
