"""OpenAI Chat Completions, provider side: writes requests, reads answers and failures."""
