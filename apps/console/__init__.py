"""The console: pages for people who use the gateway, made of the same actions and doors as the API."""
