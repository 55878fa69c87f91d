"""Configuration: settings read from the environment, checked, and documented."""
