"""The check of a caller's token, before the stream service reads anything of the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow.flight as flight

from penstock.auth.tokens import Grant, Tokens
from penstock.stream.requests import Refusal


class Caller(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The caller of one call: the grant of its token."""

    def __init__(self, grant: Grant) -> None:
        super().__init__()
        self.grant = grant


_WHERE_TOKENS_ARE: Final = (
    "--token-file or tokenFile; stream-token in the broker's data directory has one for its user"
)


class TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Refuses calls without one of the tokens, before anything of them is read.

    Args:
        tokens: the tokens.
        anonymous: the permissions of callers without one; None: they are refused.
    """

    def __init__(self, tokens: Tokens, anonymous: Grant | None = None) -> None:
        super().__init__()
        self._tokens = tokens
        self._anonymous = anonymous

    def start_call(self, _info: object, headers: Mapping[str, Sequence[str]]) -> Caller:
        """Check the token of one call. Flight calls it; header names are in lower case."""
        given = headers.get("authorization", ())
        if not given and self._anonymous is not None:
            return Caller(self._anonymous)
        if len(given) == 1:
            scheme, _, token = given[0].partition(" ")
            grant = self._tokens.grant(token) if scheme.lower() == "bearer" else None
            if grant is not None:
                return Caller(grant)
        knows = "does not know the token" if given else f"asks for a token ({_WHERE_TOKENS_ARE})"
        raise flight.FlightUnauthenticatedError(
            f"{Refusal.UNAUTHENTICATED}: the stream service {knows}",
            Refusal.UNAUTHENTICATED.encode(),
        )
