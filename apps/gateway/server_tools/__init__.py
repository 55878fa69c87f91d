"""Server tools: tools of registered MCP servers, called by the gateway turn by turn until a model has answered."""
