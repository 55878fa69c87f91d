"""Image generation, provider side: writes requests, reads answers and failures."""
