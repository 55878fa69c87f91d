"""HTTP towards clients: the worker that serves them, asked over plain sockets."""
