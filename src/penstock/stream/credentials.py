"""Credentials of a reader of the stream service, and how it verifies the service.

Files are read when a connection is made, on the machine that makes it. So a token replaced in its
file is used from the next connection on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.auth.tokens import read_tokens


@dataclass(frozen=True, slots=True)
class Credentials:
    """The token, TLS settings and certificates with which a stream service is reached.

    Attributes:
        tls: whether the service speaks TLS.
        ca_file: PEM file of the authorities that may have signed its certificate; empty: those
            that the system trusts.
        token: sent with every call; empty for none.
        token_file: a file that has the token, instead of `token`.
        certificate_file: PEM file of the certificate to show; empty for none.
        key_file: PEM file of its private key.
        verifies_service: whether its certificate is verified: not for a program on the broker's own
            machine, which knows the port as the broker's, and need not know who signed for it.
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
        """Return the trusted authorities, PEM; None for the system's own.

        Raises:
            ConfigError: the file cannot be used.
        """
        from penstock.transport.tls import read_authorities  # not for each process of Spark

        return read_authorities(Path(self.ca_file)) if self.ca_file else None

    def pair(self) -> tuple[bytes, bytes] | tuple[None, None]:
        """Return the reader's own certificate and its key, PEM; None for each if it shows none.

        Raises:
            ConfigError: a file cannot be used.
        """
        from penstock.transport.tls import read_pair

        if not self.certificate_file:
            return None, None
        return read_pair(Path(self.certificate_file), Path(self.key_file), "the reader")


PLAIN = Credentials()
"""Neither token nor TLS."""
