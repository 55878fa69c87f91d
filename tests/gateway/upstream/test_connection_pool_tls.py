"""The socket client over TLS, in this process and in one where gevent replaces sockets, as in a worker."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apps.gateway.failures import UpstreamFailure
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.http_response import SocketWaiter, Timeouts
from gateway_project.configuration.data_directory import PROJECT

# More than a record of TLS, and than what sockets take at once.
LARGE = b"0123456789abcdef" * 20_000
HUGE = 6_000_000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a key and a certificate for 127.0.0.1 that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")]), datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(plain + built.public_bytes(serialization.Encoding.PEM))
    return file


class Server(threading.Thread):
    """Answers the size of what it was sent, at length, in pieces, or late; one connection after the other."""

    def __init__(self, certificate: Path) -> None:
        super().__init__(daemon=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        self.start()

    def run(self) -> None:
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with suppress(ssl.SSLError), self.context.wrap_socket(plain, server_side=True) as client:
                while self._answer(client):
                    pass

    def _answer(self, client: ssl.SSLSocket) -> bool:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (data := client.recv(65_536)):
                return False
            head += data
        head, _, body = head.partition(b"\r\n\r\n")
        (length,) = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
        received = len(body)
        while received < length:
            received += len(client.recv(65_536))
        match head.split(b" ")[1]:
            case b"/size":
                client.sendall(_with_length(b"%d" % received))
            case b"/large":
                client.sendall(_with_length(LARGE))
            case b"/pieces":
                client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                for number in range(5):
                    client.sendall(b"5\r\nhell%d\r\n" % number)
                    time.sleep(0.02)
                client.sendall(b"0\r\n\r\n")
            case b"/silent":
                time.sleep(0.5)
        return True


def _with_length(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@pytest.fixture
def server(certificate: Path) -> Iterator[Server]:
    server = Server(certificate)
    yield server
    server.listener.close()


ASKING = """
import sys
if sys.argv[1] == "patched":
    import gevent.monkey; gevent.monkey.patch_all()
import json
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.http_response import Timeouts
from apps.gateway.failures import UpstreamFailure
from apps.gateway.upstream.http_response import SocketWaiter

def post(path, body=b"{}", **budget):
    sending = connection_pool.send("POST", sys.argv[2] + path, {}, body, Timeouts(**{
        "connect": 2, "first_byte": 2, "idle": 2, "total": 5, "tick": 2, **budget
    }))
    try:
        while True:
            next(sending)
    except StopIteration as done:
        exchange = done.value
    try:
        return exchange.read(10_000_000)
    finally:
        exchange.close()

def failing(*asked, **budget):
    try:
        post(*asked, **budget)
    except UpstreamFailure as failure:
        return [failure.error_type, failure.message]

print(json.dumps([
    post("/size", b"x" * int(sys.argv[3])).decode(),
    len(post("/large")),
    post("/pieces").decode(),
    post("/large")[-3:].decode(),
    failing("/silent", first_byte=0.2),
]))
"""


@pytest.mark.parametrize("sockets", ["patched", "plain"])
def test_whatever_its_size_and_pace_it_arrives(server: Server, certificate: Path, sockets: str) -> None:
    url = f"https://127.0.0.1:{server.listener.getsockname()[1]}"
    asked = subprocess.run(
        [sys.executable, "-c", ASKING, sockets, url, str(HUGE)],
        cwd=PROJECT,
        env={**os.environ, "SSL_CERT_FILE": str(certificate), "DJANGO_SETTINGS_MODULE": "gateway_project.settings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == [
        str(HUGE),
        len(LARGE),
        "hell0hell1hell2hell3hell4",
        "def",
        ["timeout", "no first byte within 0.2 s"],
    ]
    # One connection for all: each answer was read to its end.
    assert server.connections == 1


def test_a_certificate_that_nobody_vouches_for_is_refused(server: Server) -> None:
    url = f"https://127.0.0.1:{server.listener.getsockname()[1]}"
    with pytest.raises(UpstreamFailure) as caught:
        next(connection_pool.send("POST", url, {}, b"", Timeouts(connect=2, first_byte=2, idle=2, total=5, tick=2)))
    assert (caught.value.error_type, caught.value.message) == (
        "network",
        "the provider's certificate could not be verified",
    )


def test_what_has_been_read_but_not_given_out_is_there(certificate: Path) -> None:
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(certificate))
    serving.load_cert_chain(certificate)
    ours, theirs = socket.socketpair()

    def say() -> None:
        with serving.wrap_socket(theirs, server_side=True) as server:
            server.sendall(b"0123456789")
            server.recv(1)

    thread = threading.Thread(target=say)
    thread.start()
    with asking.wrap_socket(ours, server_hostname="127.0.0.1") as client:
        readiness = SocketWaiter(client)
        assert readiness.wait(5) is True
        # The whole record is read from the socket, and half of it given out.
        assert client.recv(5) == b"01234"
        assert readiness.wait(5) is True
        assert client.recv(5) == b"56789"
        assert readiness.wait(0.05) is False
        readiness.close()
        client.sendall(b"x")
    thread.join(5)
