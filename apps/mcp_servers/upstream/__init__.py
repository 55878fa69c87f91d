"""Client of MCP servers: streamable HTTP to tenants' addresses, with limits on time and size."""
