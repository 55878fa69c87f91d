"""The provider side of Google's generateContent: requests written, answers and failures read."""
