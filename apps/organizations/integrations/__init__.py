"""Integrations: services that an organization registers with a credential: log sinks, MCP servers, provider keys."""
