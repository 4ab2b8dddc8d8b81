"""The credentials of a client of the stream service, and the settings by which it verifies the
service.

Files are read when a connection is opened, on the machine that opens it. So a token replaced in its
file is used from the next connection on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.auth.tokens import read_tokens


@dataclass(frozen=True, slots=True)
class Credentials:
    """The token, TLS settings and certificates for connections to a stream service.

    Attributes:
        tls: whether the service uses TLS.
        ca_file: PEM file of the authorities that are trusted to sign the service's certificate;
            empty for the authorities that the system trusts.
        token: the token sent with every call; empty for none.
        token_file: file with the token, used instead of `token`; empty for none.
        certificate_file: PEM file of the client certificate; empty for none.
        key_file: PEM file of its private key.
        verifies_service: whether the service's certificate is verified. False for a program on the
            broker's own machine: it knows that the port is the broker's, and may not know the
            authority.
    """

    tls: bool = False
    ca_file: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    verifies_service: bool = True

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of each call.

        Raises:
            ConfigError: the token file cannot be used.
        """
        token = read_tokens(Path(self.token_file))[0] if self.token_file else self.token
        return [(b"authorization", b"Bearer " + token.encode())] if token else []

    def root_certificates(self) -> bytes | None:
        """Return the trusted authorities, PEM; None for those that the system trusts.

        Raises:
            ConfigError: the file cannot be used.
        """
        from penstock.transport.tls import read_authorities  # slow: Spark starts many processes

        return read_authorities(Path(self.ca_file)) if self.ca_file else None

    def pair(self) -> tuple[bytes, bytes] | tuple[None, None]:
        """Return the client certificate and its private key, PEM; (None, None) if there is none.

        Raises:
            ConfigError: a file cannot be used.
        """
        from penstock.transport.tls import read_pair

        if not self.certificate_file:
            return None, None
        return read_pair(Path(self.certificate_file), Path(self.key_file), "the reader")


PLAIN = Credentials()
"""Credentials without token and TLS."""
