"""Decide how a login may be answered: the only place that controls what a server sees of the
password; and TLS as arguments of pymysql.

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
- A password that a command prints is asked for at each connect, since a token expires. What the
  command prints is in no message, neither of its streams.
- ``off`` never encrypts; ``preferred`` encrypts if the server offers it and checks nothing;
  ``required`` encrypts and checks nothing; ``verify_ca`` checks the certificate's signer,
  ``verify`` the signer and the host name. The last three never fall back to plain text.
- With a ``ca_file`` no other authority is trusted: those of the system would accept anyone's
  certificate.
- A file that cannot be read is an error that names its setting, before any connection is made.

Source: pymysql 1.2 `connections.py` (`_request_authentication`, `_process_auth`) and `_auth.py`;
MySQL manual "Caching SHA-2 Pluggable Authentication"; MariaDB "Authentication Plugin - PAM".
"""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from pymysql import _auth

from cdc_pipeline.config.pipeline_config import LiveSourceConfig, TlsConfig
from cdc_pipeline.errors import ConfigError, InsecureLoginError, ServerUnreachableError

# Their answers are made of a challenge and a hash; pymysql computes them.
_CHALLENGED: Final = frozenset({"", "mysql_native_password", "client_ed25519"})
_CLEAR_TEXT: Final = frozenset({"mysql_clear_password", "dialog"})
_SHA2: Final = frozenset({"caching_sha2_password", "sha256_password"})
COMMAND_SETTING: Final = "source.password_command"
_NO_KEY: Final = b"no key is taken from this server"


def password(config: LiveSourceConfig) -> bytes:
    """Raises ServerUnreachableError: the command gives none this time; ConfigError: it cannot be
    started.
    """
    if config.password is not None:
        return config.password.get_secret_value().encode()
    program = config.password_command[0]
    try:
        answer = subprocess.run(  # noqa: S603 (the file's own command, without a shell)
            config.password_command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=config.connect_timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        got = f"no answer within {config.connect_timeout_s:g} s"
    except (OSError, ValueError) as error:
        raise ConfigError(
            "the password's command cannot be started",
            setting=COMMAND_SETTING,
            expected="a program's path or name, then its arguments",
            got=f"{program}: {getattr(error, 'strerror', None) or error}",
            next_step="correct the path, or install the program where runs find it",
        ) from None
    else:
        secret = answer.stdout.removesuffix(b"\n").removesuffix(b"\r")
        if answer.returncode == 0 and secret:
            return secret
        got = f"exit code {answer.returncode}" if answer.returncode else "an empty answer"
    raise ServerUnreachableError(
        "the password's command gives no password",
        setting=COMMAND_SETTING,
        expected="exit code 0, and the password on standard output",
        got=f"{program}: {got}",
        next_step="run the command by hand, in the environment that runs have",
    )


class LoginPlugins:
    """pymysql's `auth_plugin_map`: a handler by the name of the plugin that a server requests."""

    def get(self, name: bytes | str) -> Callable[[Any], object]:
        """A factory of the handler for a connection; None stands for pymysql's own answer."""
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
    """`caching_sha2_password`, `sha256_password`: no key from another machine without TLS."""

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


def tls_arguments(tls: TlsConfig) -> dict[str, Any]:
    """For pymysql. Raises ConfigError: a certificate or key file is missing or invalid."""
    if tls.mode == "off":
        return {"ssl_disabled": True}
    if tls.mode == "preferred":
        return {}
    return {"ssl": _context(tls)}


def unverified_context() -> ssl.SSLContext:
    """Without the system's authorities: reading them costs more than a whole login."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _context(tls: TlsConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=None if tls.ca_file is None else str(tls.ca_file)
        )
    except OSError as error:
        raise _unreadable("source.tls.ca_file", tls.ca_file, error) from None
    # MySQL's self-made certificates violate the strict profile of RFC 5280 (Python 3.13's default).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = tls.mode == "verify"
    context.verify_mode = (
        ssl.CERT_REQUIRED if tls.mode in ("verify_ca", "verify") else ssl.CERT_NONE
    )
    if tls.certificate_file is not None:
        key_file = tls.key_file or tls.certificate_file
        try:
            context.load_cert_chain(
                str(tls.certificate_file), keyfile=str(key_file), password=_no_password
            )
        except OSError as error:
            raise _unreadable("source.tls.certificate_file", tls.certificate_file, error) from None
    return context


def _no_password() -> str:
    # Without this OpenSSL would prompt on the terminal, and a scheduled run would hang.
    return ""


def _unreadable(setting: str, file: Path | None, error: OSError) -> ConfigError:
    return ConfigError(
        "a TLS file cannot be used",
        setting=setting,
        expected="a readable PEM file, and a key without a passphrase",
        got=f"{file}: {error.strerror or error}",
        next_step="correct the path, or the file's permissions",
    )
