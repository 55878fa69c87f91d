"""Processes: the server's supervisor, web workers, reloads and draining."""
