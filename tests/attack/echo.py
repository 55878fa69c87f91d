"""A server that says back what it hears. Run as a process of its own: its waits are those of the machine alone."""

from __future__ import annotations

import socket
import sys


def main() -> None:
    """Serve one connection until it is closed."""
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
        sock, _ = server.accept()
        with sock:
            while data := sock.recv(1024):
                sock.sendall(data)


if __name__ == "__main__":
    main()
