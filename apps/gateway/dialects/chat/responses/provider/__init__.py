"""OpenAI Responses, provider side: writes requests, reads answers and failures."""
