"""A server that lies at login: it greets, asks for a plugin of its choice, and keeps every byte
that it is sent.

Rules:
- One connection after the other, in a thread that ends with the context. Nothing here waits by
  sleeping.
- With `with_tls` its certificate is signed by itself, for 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
import struct
import threading
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_SALT = bytes(range(65, 85))
# LONG_PASSWORD, PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH.
_CAPABILITIES = 0x1 | 0x200 | 0x8000 | 0x80000
_SSL = 0x800


class LoginServer:
    """Listens from construction on. It asks for the plugin `switch_to` after the client's first
    answer; with a `folder` it has TLS, with the certificate `ca.pem` there. Its RSA key is the
    same.

    `received` has every byte that came inside or outside of TLS, decrypted, and each RSA-
    encrypted answer.
    """

    def __init__(
        self,
        switch_to: str = "",
        *,
        greeting: str = "mysql_native_password",
        folder: Path | None = None,
    ) -> None:
        self._switch_to = switch_to
        self._greeting = greeting
        self._tls = None if folder is None else make_certificate(folder)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.received = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> LoginServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                wire, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError, EOFError), contextlib.closing(wire):
                self._talk(wire)

    def _talk(self, wire: socket.socket) -> None:
        capabilities = _CAPABILITIES | (_SSL if self._tls else 0)
        greeting = (
            b"\x0a9.7.0\0"
            + struct.pack("<I", 7)
            + _SALT[:8]
            + b"\0"
            + struct.pack("<H", capabilities & 0xFFFF)
        )
        greeting += (
            b"\xff\x02\0"
            + struct.pack("<H", capabilities >> 16)
            + b"\x15"
            + bytes(10)
            + _SALT[8:]
            + b"\0"
        )
        _send(wire, 0, greeting + self._greeting.encode() + b"\0")
        number, answer = self._take(wire)
        if self._tls is not None and struct.unpack_from("<I", answer)[0] & _SSL:
            wire = self._tls.wrap_socket(wire, server_side=True)
            number, answer = self._take(wire)
        if not self._switch_to and self._greeting == "sha256_password":
            self._switch_to = self._greeting  # what its clients answer is a challenge
        if self._switch_to:
            _send(wire, number + 1, b"\xfe" + self._switch_to.encode() + b"\0" + self._prompt())
        elif self._greeting == "caching_sha2_password":
            _send(wire, number + 1, b"\x01\x04")
        while True:
            number, answer = self._take(wire)
            if answer in (b"\x01", b"\x02"):
                _send(wire, number + 1, b"\x01" + _public_key())
            elif len(answer) == 32:
                _send(wire, number + 1, b"\x01\x04")
            else:
                if len(answer) == 256:
                    oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
                    masked = _KEY.decrypt(answer, oaep)
                    self.received += bytes(byte ^ _SALT[at % 20] for at, byte in enumerate(masked))
                _send(wire, number + 1, b"\xff" + struct.pack("<H", 1045) + b"#28000no")
                return

    def _prompt(self) -> bytes:
        return b"\x05Password: " if self._switch_to == "dialog" else _SALT + b"\0"

    def _take(self, wire: socket.socket) -> tuple[int, bytes]:
        head = _exactly(wire, 4)
        content = _exactly(wire, int.from_bytes(head[:3], "little"))
        self.received += content
        return head[3], content


def _send(wire: socket.socket, number: int, content: bytes) -> None:
    wire.sendall(len(content).to_bytes(3, "little") + bytes([number]) + content)


def _exactly(wire: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = wire.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found


def _public_key() -> bytes:
    return _KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def make_certificate(folder: Path) -> ssl.SSLContext:
    """Write `ca.pem` and `key.pem` to `folder`; return the context of a server with them."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(_KEY.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=365 * 60))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(_KEY, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        _KEY.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context
