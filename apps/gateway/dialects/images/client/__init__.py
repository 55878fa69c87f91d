"""The client side of images: requests read, responses and errors written."""
