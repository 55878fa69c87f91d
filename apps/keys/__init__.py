"""API keys, access rules and provider credentials."""
