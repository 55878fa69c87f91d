"""The protocol of MCP servers over HTTP, whatever their tools are: JSON-RPC, revisions, sessions, streams, calls."""
