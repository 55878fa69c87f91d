"""The provider side of images: requests written, answers and failures read."""
