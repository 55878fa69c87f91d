"""The provider side of OpenAI's chat completions format: requests written, answers and failures read."""
