"""OpenAI Chat Completions, both sides: names on the wire, usage and errors."""
