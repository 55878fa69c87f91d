"""Valkey or Redis over TLS: a server program that was built with it, where one is installed, and certificates.

The embedded program was not.
"""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

MISSING = "no Valkey or Redis with TLS is on PATH (Debian: apt install redis-server)"


def find_program() -> Path | None:
    """Return a server program on PATH that speaks TLS, None where there is none."""
    for name in ("valkey-server", "redis-server"):
        program = shutil.which(name)
        if program is None:
            continue
        # It ends at once: its TLS options are incomplete, or it does not support TLS.
        told = subprocess.run(
            [program, "--port", "0", "--tls-port", "1"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
        if "tls-cert-file" in told:
            return Path(program)
    return None


class Tls:
    """A program that speaks TLS, and certificates of its own: of an authority, and by it of this machine."""

    def __init__(self, program: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.program = program
        self.authority, self.certificate, self.key = (folder / name for name in ("ca.pem", "own.pem", "own.key"))
        authority_key, own_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        authority = _certificate("Test authority", authority_key.public_key(), "Test authority", authority_key, ca=True)
        own = _certificate("This machine", own_key.public_key(), "Test authority", authority_key, ca=False)
        for path, made in ((self.authority, authority), (self.certificate, own)):
            path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        kind, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self.key.write_bytes(own_key.private_bytes(kind, form, serialization.NoEncryption()))

    def words(self, port: int) -> list[str]:
        """Return a server's options: TLS alone, on a port."""
        files = {
            "port": "0",
            "tls-port": str(port),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-ca-cert-file": str(self.authority),
            "tls-auth-clients": "no",
            "tls-replication": "yes",
        }
        return [word for name, value in files.items() for word in (f"--{name}", value)]

    @property
    def client(self) -> dict[str, Any]:
        """Options for redis-py."""
        return {"ssl": True, "ssl_ca_certs": str(self.authority)}


def _certificate(
    name: str, key: ec.EllipticCurvePublicKey, issuer: str, by: ec.EllipticCurvePrivateKey, *, ca: bool
) -> x509.Certificate:
    now = datetime.now(UTC)
    local = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(local), critical=False)
        .sign(by, hashes.SHA256())
    )
