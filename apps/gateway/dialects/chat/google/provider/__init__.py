"""Google generateContent, provider side: writes requests, reads answers and failures."""
