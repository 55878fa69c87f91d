"""The client side of Cohere's chat, version 2: requests read, responses written, whole and streamed."""
