"""What both sides of Google's generateContent share: names on the wire and usage."""
