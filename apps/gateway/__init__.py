"""One request to a model, from the client bytes to the recorded cost."""
