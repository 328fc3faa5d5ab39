"""TLS: a page comes over a verified connection or not at all; real servers with certificates made here."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastwarc.warc import ArchiveIterator, WarcRecordType
from hostile_answers import IN_A_SECOND, NO_ROBOTS, answer, redirect

pytestmark = pytest.mark.usefixtures("wire")

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority made for this test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self._sign(self._name, self._key, is_authority=True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(_pem(self.certificate))

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        is_authority: bool = False,
        names: list[x509.GeneralName] | None = None,
        ends: datetime.datetime = NOW + DAY,
        self_signed: bool = False,
    ) -> x509.Certificate:
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name if self_signed else self._name)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(NOW - 3 * DAY).not_valid_after(ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(key if self_signed else self._key, hashes.SHA256())

    def context(self, label: str, **changes: Any) -> ssl.SSLContext:
        """Make a server's context with a certificate for 127.0.0.1, modified by `changes`."""
        key = ec.generate_private_key(ec.SECP256R1())
        extra = changes.pop("chain", 0)
        changes.setdefault("names", [x509.IPAddress(ip_address("127.0.0.1"))])
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, label)])
        chain = [self._sign(name, key, **changes)] + [self.certificate] * extra
        file = self._folder / f"{label.replace(' ', '-')}.pem"
        form, fmt = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(form, fmt, serialization.NoEncryption())
        file.write_bytes(secret + b"".join(map(_pem, chain)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


Serve = Callable[..., tuple[int, list[bytes]]]


@pytest.fixture
def serve(wire: Any) -> Iterator[Serve]:
    """Start a TLS server on 127.0.0.1 with one answer. Returns its port and the list of requests that it could read."""
    listeners: list[socket.socket] = []

    def start(
        context: ssl.SSLContext | None, reply: bytes = answer(), *, ends_in_order: bool = False
    ) -> tuple[int, list[bytes]]:
        received: list[bytes] = []
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        port = listener.getsockname()[1]
        wire.allowed.add(("127.0.0.1", port))

        def talk() -> None:
            held = []  # without a context it never answers
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                if context is None:
                    held.append(connection)
                    continue
                try:
                    connection.settimeout(60)
                    with context.wrap_socket(connection, server_side=True) as secured:
                        received.append(secured.recv(2000))
                        secured.sendall(reply.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                        if ends_in_order:
                            secured.unwrap()  # sends close_notify
                except OSError:
                    connection.close()

        threading.Thread(target=talk, daemon=True).start()
        return port, received

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    return made


def crawl_over_tls(outcomes: Any, ports: dict[str, int], **changes: Any) -> Any:
    plan = {name: f"https://127.0.0.1:{port}/{i}" for i, (name, port) in enumerate(ports.items())}
    return outcomes(plan, allow_address=("127.0.0.1",), **{**NO_ROBOTS, **changes})


def test_a_valid_certificate_is_accepted(outcomes: Any, serve: Serve, authority: Authority) -> None:
    port, received = serve(authority.context("good"))
    rows = crawl_over_tls(outcomes, {"good": port})
    assert rows["good"]["reason"] is None
    assert any(request.startswith(b"GET /0 HTTP/1.1\r\n") for request in received)


def test_a_body_that_ends_with_the_connection_is_marked_as_truncated_unless_the_server_ended_it(
    outcomes: Any, serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    """A body without Content-Length and chunks ends where TLS ends. Without close_notify anybody can have cut it."""
    endless = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>"
    servers = {
        "cut": serve(authority.context("cut"), endless + b"cut"),
        "in order": serve(authority.context("in order"), endless + b"in order", ends_in_order=True),
        "announced": serve(authority.context("announced"), answer(b"<html>announced")),
    }
    rows = crawl_over_tls(outcomes, {name: port for name, (port, _) in servers.items()})
    assert {name: row["reason"] for name, row in rows.items()} == dict.fromkeys(servers)
    marks = {}
    for file in sorted(tmp_path.glob("pages*/*.warc.gz")):
        with file.open("rb") as opened:
            for record in ArchiveIterator(opened, record_types=WarcRecordType.response):
                marks[record.reader.read()] = record.headers.get("WARC-Truncated")
    assert marks == {b"<html>cut": "disconnect", b"<html>in order": None, b"<html>announced": None}


def test_nothing_is_sent_over_a_connection_that_can_t_be_verified(
    outcomes: Any, serve: Serve, authority: Authority
) -> None:
    elsewhere = [x509.DNSName("other.example"), x509.IPAddress(ip_address("127.0.0.9"))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old = authority.context("TLS 1.0")
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1
    contexts = {
        "expired": authority.context("expired", ends=NOW - DAY),
        "signed by itself": authority.context("self", self_signed=True),
        "for another name": authority.context("name", names=elsewhere),
        "TLS 1.0": old,
        "a chain of more than 100 KB": authority.context("chain", chain=400),
    }
    servers = {name: serve(context) for name, context in contexts.items()}
    rows = crawl_over_tls(outcomes, {name: port for name, (port, _) in servers.items()})
    assert {name: row["reason"] for name, row in rows.items()} == dict.fromkeys(contexts, "tls_failed")
    assert [b"".join(received) for _, received in servers.values()] == [b""] * len(servers)
    assert "expired" in rows["expired"]["cause"]


def test_a_handshake_that_stalls_ends_in_time(outcomes: Any, serve: Serve, authority: Authority) -> None:
    port, _ = serve(None)
    rows = crawl_over_tls(outcomes, {"stalls": port}, **IN_A_SECOND)
    assert rows["stalls"]["reason"] == "timed_out"


def test_a_ping_pong_between_http_and_https_is_a_loop(
    outcomes: Any, serve: Serve, authority: Authority, web: Any
) -> None:
    start = web.url("/start")
    port, _ = serve(authority.context("pong"), redirect(start))
    web.redirect("/start", f"https://127.0.0.1:{port}/pong")
    rows = outcomes({"ping": start}, allow_address=("127.0.0.0/8",), **NO_ROBOTS)
    assert rows["ping"]["reason"] == "redirect_loop"
