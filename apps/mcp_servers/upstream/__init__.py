"""The client of MCP servers: streamable HTTP, spoken to addresses that tenants give, within bounds of time and size."""
