"""Google generateContent: names on the wire and usage."""
