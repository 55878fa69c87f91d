"""Access: what an API key may do, and with which credential a provider is called."""
