"""The client side of Google's generateContent: requests read, responses and errors written."""
