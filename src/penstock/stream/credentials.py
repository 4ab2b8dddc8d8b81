"""What a reader shows the stream service, and how it knows the service: token and TLS.

Files are read when a connection is made, on the machine that makes it. So a token that is exchanged
in its file holds from the next connection on.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from penstock.auth.tokens import read_tokens
from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to reach a stream service that asks for a token, or speaks TLS.

    Attributes:
        tls: whether the service speaks TLS.
        ca_file: PEM file of the authorities that may have signed its certificate; empty for those
            the system knows.
        token: shown with every call; empty for none.
        token_file: a file with the token, instead.
    """

    tls: bool = False
    ca_file: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""

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
        if not self.ca_file:
            return None
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(self.ca_file)
            return Path(self.ca_file).read_bytes()
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            reason = "it is not PEM" if isinstance(error, ssl.SSLError) else error
            raise ConfigError(
                f"the file of certificate authorities {self.ca_file} cannot be used: {reason}"
            ) from error


PLAIN = Credentials()
"""Neither token nor TLS."""
