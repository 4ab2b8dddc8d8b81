"""Access to metrics: for everyone who reaches a loopback address, or for those who show a token.

Where no token is asked for, the request must name this machine as its host. Else a page in a
browser here could have its own name resolved to the loopback address, and read the answers.
"""

from __future__ import annotations

from typing import Final, final

from penstock.auth.tokens import Tokens

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


@final
class Gate:
    """Decides about requests.

    Args:
        tokens: the accepted tokens; None: none is asked for.
        host: the address that is listened on, as a URL has it.
    """

    def __init__(self, tokens: Tokens | None, host: str) -> None:
        self._tokens = tokens
        self._names = _LOOPBACK_NAMES | {host.lower()}

    def names_us(self, host: str) -> bool:
        """Return whether a ``Host`` header may be answered."""
        if self._tokens is not None:
            return True  # who has a token means us
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return name.lower() in self._names

    def lets_in(self, authorization: str) -> bool:
        """Return whether an ``Authorization`` header shows what is asked for.

        Tokens are compared by their hashes, so that the time tells nothing of them.
        """
        if self._tokens is None:
            return True
        scheme, _, token = authorization.partition(" ")
        return scheme.lower() == "bearer" and self._tokens.has(token.strip())
