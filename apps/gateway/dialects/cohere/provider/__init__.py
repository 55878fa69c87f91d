"""The provider side of Cohere's chat: requests written, answers and failures read."""
