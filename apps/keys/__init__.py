"""Who may call, with what, as whom: API keys, access rules, provider credentials."""
