"""TLS settings of a live source as arguments of pymysql.

Rules:
- ``off`` never encrypts; ``preferred`` encrypts if the server offers it and checks nothing;
  ``required`` encrypts and checks nothing; ``verify_ca`` checks the certificate's signer,
  ``verify`` the signer and the host name. The last three never fall back to plain text.
- With a ``ca_file`` no other authority is trusted: those of the system would accept anyone's
  certificate.
- A file that cannot be read is an error that names its setting, before any connection is made.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from cdc_pipeline.config.pipeline_config import TlsConfig
from cdc_pipeline.errors import ConfigError


def tls_arguments(tls: TlsConfig) -> dict[str, Any]:
    """For `pymysql.connections.Connection`. Raises ConfigError: a certificate or key file is
    missing or invalid.
    """
    if tls.mode == "off":
        return {"ssl_disabled": True}
    if tls.mode == "preferred":
        return {}
    return {"ssl": _context(tls)}


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
