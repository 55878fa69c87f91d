"""The provider side of OpenAI's Responses format: requests written, answers and failures read."""
