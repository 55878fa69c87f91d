"""A front that ends TLS before a server of plain HTTP, as a load balancer does, for clients that insist on HTTPS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from tests.support.valkey_tls import Tls

_PIECE = 64 * 1024


@contextmanager
def tls_front(port: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """Serve HTTPS before a port of this machine; yield the address, and the authority that clients have to trust."""
    tls = Tls(Path(), folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=_accept, args=(listener, context, port), daemon=True).start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}", tls.authority
        # Wakes the thread that waits for connections.
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            Thread(target=_serve, args=(client, context, port), daemon=True).start()


def _serve(client: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with (
        suppress(OSError),
        context.wrap_socket(client, server_side=True) as secured,
        socket.create_connection(("127.0.0.1", port)) as server,
    ):
        Thread(target=_pump, args=(secured, server), daemon=True).start()
        _pump(server, secured)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
