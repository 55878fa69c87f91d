"""Model Context Protocol: `/mcp`, the gateway as a tool of programs that speak it."""
