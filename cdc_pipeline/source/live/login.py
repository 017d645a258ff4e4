"""Decide how a login may be answered: the only place that controls what a server sees of the
password.

Rules:
- The server names the login plugin, so a plugin is used only if it is known here. A name that is
  not known is refused, and so is `mysql_old_password`, whose answer can be turned back into the
  password.
- `mysql_clear_password` and `dialog` (PAM, LDAP) send the password as it is: only over TLS with a
  checked certificate.
- `caching_sha2_password` and `sha256_password` without TLS encrypt the password with a key that the
  server sends. Another machine on the way can send its own, so a key is taken from this machine
  alone; elsewhere TLS is needed.
- Inside TLS they send the password, as the servers' own clients do: only `verify` and `verify_ca`
  authenticate the receiver.
- `connection_arguments` hands this map to pymysql, and every connection is made with those
  arguments.

Source: pymysql 1.2 `connections.py` (`_request_authentication`, `_process_auth`) and `_auth.py`;
MySQL manual "Caching SHA-2 Pluggable Authentication"; MariaDB "Authentication Plugin - PAM".
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

from pymysql import _auth

from cdc_pipeline.errors import InsecureLoginError

# Their answers are made of a challenge and a hash; pymysql computes them.
_CHALLENGED: Final = frozenset({"", "mysql_native_password", "client_ed25519"})
_CLEAR_TEXT: Final = frozenset({"mysql_clear_password", "dialog"})
_SHA2: Final = frozenset({"caching_sha2_password", "sha256_password"})
_NO_KEY: Final = b"no key is taken from this server"


class LoginPlugins:
    """pymysql's `auth_plugin_map`: a handler by the name of the plugin that a server requests."""

    def get(self, name: bytes | str) -> Callable[[Any], object]:
        """The factory of the plugin's handler for a connection; it returns None for pymysql's
        own answer.
        """
        text = name if isinstance(name, str) else name.decode("ascii", "backslashreplace")
        return partial(_handler, text)


def _handler(name: str, connection: Any) -> object:
    if name in _CHALLENGED or (name in _CLEAR_TEXT and _is_verified(connection)):
        return None
    if name in _SHA2:
        return _Sha2(name, connection)
    return _Refused(name, connection)


class _Refused:
    """pymysql closes the connection."""

    def __init__(self, name: str, connection: Any) -> None:
        self._name = name
        self._connection = connection

    def authenticate(self, _packet: object) -> object:
        raise _refusal(self._name, self._connection)


class _Sha2:
    """`caching_sha2_password`, `sha256_password`: without TLS no key is taken from
    another machine.
    """

    def __init__(self, name: str, connection: Any) -> None:
        self._name = name
        self._connection = connection

    def authenticate(self, packet: object) -> object:
        connection = self._connection
        takes_key = connection._secure or not connection.password or _is_local(connection)
        if self._name == "sha256_password":
            if not takes_key:
                raise _refusal(self._name, connection)
            return _auth.sha256_password_auth(connection, packet)  # type: ignore[no-untyped-call]
        if not takes_key:
            # A server that has cached the account needs no key. If it requests more, pymysql fails
            # with this one.
            connection.server_public_key = _NO_KEY
        try:
            return _auth.caching_sha2_password_auth(connection, packet)
        except ValueError:
            if takes_key:
                raise
            raise _refusal(self._name, connection) from None


def is_this_machine(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_verified(connection: Any) -> bool:
    """According to the socket and not the settings."""
    wire = connection._sock
    return isinstance(wire, ssl.SSLSocket) and wire.context.verify_mode == ssl.CERT_REQUIRED


def _is_local(connection: Any) -> bool:
    return is_this_machine(str(connection._sock.getpeername()[0]))


def _refusal(name: str, connection: Any) -> InsecureLoginError:
    address = f"{connection.host}:{connection.port}"
    shown = (
        name
        if name.isascii() and name.isprintable() and len(name) <= 64
        else "a plugin with an unusual name"
    )
    if name in _CLEAR_TEXT:
        expected = "TLS with a verified certificate, because the password is sent in plain text"
        got = (
            "TLS without verification" if isinstance(connection._sock, ssl.SSLSocket) else "no TLS"
        )
        next_step = (
            "set source.tls to {mode: verify, ca_file: ...} with the certificate of the server's CA"
        )
    elif name in _SHA2:
        expected = "TLS, or an account that the server has logged in since it started"
        got = "no TLS"
        next_step = (
            "set source.tls to {mode: verify, ca_file: ...}; to enable TLS on a server, set "
            "ssl_cert and ssl_key"
        )
    else:
        expected = "caching_sha2_password, sha256_password, mysql_native_password or client_ed25519"
        got = shown
        next_step = (
            "ALTER USER ... IDENTIFIED WITH caching_sha2_password (MySQL) or "
            "mysql_native_password (MariaDB)"
        )
    return InsecureLoginError(
        f"{address} asks for a login with {shown}; the password was not sent",
        setting="source.tls.mode" if name in _CLEAR_TEXT | _SHA2 else "source.user",
        expected=expected,
        got=got,
        next_step=next_step,
    )
