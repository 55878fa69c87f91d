"""The gateway's own tools: its models, for programs that speak the Model Context Protocol."""
