"""Certificates of tests, and a client that trusts one alone."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import time
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def certify(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for loopback, which is its own authority, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.timezone.utc)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    pem, secret = folder / "tls.crt", folder / "tls.key"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return pem, secret


def served(port: int, trusted: Path) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(trusted))
    return httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, timeout=60, trust_env=False)


def takes_up(port: int, trusted: Path) -> None:
    """Returns when the service serves with this certificate: it takes it up in a thread of its own."""
    deadline = time.monotonic() + 90
    while True:
        try:
            with served(port, trusted) as web:
                assert web.get("/healthz").status_code == 200
                return
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
