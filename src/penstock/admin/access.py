"""Access to what the admin process tells and does: by a token, or by a loopback address.

=====================  =====================================  ==============================
                       health checks                          metrics, and the API
=====================  =====================================  ==============================
with a token file      for everyone; reasons need a token     for those who show a token
without (loopback)     for everyone who reaches it            metrics as well, the API not
=====================  =====================================  ==============================

Where no token is asked for, the request must name this machine as its host. Else a page in a
browser here could have its own name resolved to the loopback address, and read the answers. Nothing
is kept in cookies, so no page of others can act with what a browser has.
"""

from __future__ import annotations

from typing import Final, final

from penstock.auth.admin_tokens import AdminGrant, AdminTokens

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


@final
class Gate:
    """Decides about requests.

    Args:
        tokens: the accepted tokens; None: none is asked for.
        host: the address that is listened on, as a URL has it.
    """

    def __init__(self, tokens: AdminTokens | None, host: str) -> None:
        self._tokens = tokens
        self._names = _LOOPBACK_NAMES | {host.lower()}

    @property
    def asks(self) -> bool:
        """Return whether it asks for tokens."""
        return self._tokens is not None

    def names_us(self, host: str) -> bool:
        """Return whether a ``Host`` header may be answered."""
        if self._tokens is not None:
            return True  # who has a token means us
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return name.lower() in self._names

    def lets_in(self, authorization: str) -> bool:
        """Return whether an ``Authorization`` header shows what is asked for."""
        return self._tokens is None or self.grant(authorization) is not None

    def grant(self, authorization: str) -> AdminGrant | None:
        """Return the role of the token in an ``Authorization`` header; None where it has none."""
        if self._tokens is None:
            return None
        scheme, _, token = authorization.partition(" ")
        return self._tokens.grant(token.strip()) if scheme.lower() == "bearer" else None
