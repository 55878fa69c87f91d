"""The provider side of Anthropic's messages format: requests written, answers and failures read."""
