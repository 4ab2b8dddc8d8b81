"""What a reader shows the stream service, and how it knows the service: token, TLS, certificates.

Files are read when a connection is made, on the machine that makes it. So a token that is exchanged
in its file holds from the next connection on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.auth.tokens import read_tokens


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to reach a stream service that asks for a token, or speaks TLS.

    Attributes:
        tls: whether the service speaks TLS.
        ca_file: PEM file of the authorities that may have signed its certificate; empty for those
            the system knows.
        token: shown with every call; empty for none.
        token_file: a file with the token, instead.
        certificate_file: PEM file of the certificate to show; empty for none.
        key_file: PEM file of its private key.
    """

    tls: bool = False
    ca_file: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Those of each call.

        Raises:
            ConfigError: the token file cannot be used.
        """
        token = read_tokens(Path(self.token_file))[0] if self.token_file else self.token
        return [(b"authorization", b"Bearer " + token.encode())] if token else []

    def root_certificates(self) -> bytes | None:
        """The authorities to believe, PEM; None for those the system knows.

        Raises:
            ConfigError: the file cannot be used.
        """
        from penstock.transport.tls import read_authorities  # not for each process of Spark

        return read_authorities(Path(self.ca_file)) if self.ca_file else None

    def pair(self) -> tuple[bytes, bytes] | tuple[None, None]:
        """The reader's own certificate and its key, PEM; None where it shows none.

        Raises:
            ConfigError: a file cannot be used.
        """
        from penstock.transport.tls import read_pair

        if not self.certificate_file:
            return None, None
        return read_pair(Path(self.certificate_file), Path(self.key_file), "the reader")


PLAIN = Credentials()
"""Neither token nor TLS."""
