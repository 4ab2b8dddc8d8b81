"""Checks the token of a caller before the stream service reads the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow.flight as flight

from penstock.auth.tokens import Grant, Tokens
from penstock.stream.requests import Refusal


class Caller(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The caller of a call, with the permissions of its token."""

    def __init__(self, grant: Grant) -> None:
        super().__init__()
        self.grant = grant


_WHERE_TOKENS_ARE: Final = (
    "--token-file or tokenFile; stream-token in the broker's data directory has one for its user"
)


class TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Refuses calls without an accepted token before their request is read.

    Args:
        tokens: the accepted tokens.
        anonymous: the permissions of callers without a token; None to refuse them.
    """

    def __init__(self, tokens: Tokens, anonymous: Grant | None = None) -> None:
        super().__init__()
        self._tokens = tokens
        self._anonymous = anonymous

    def start_call(self, _info: object, headers: Mapping[str, Sequence[str]]) -> Caller:
        """Check the token in the headers of a call; return the caller.

        Flight calls this method, with header names in lower case.

        Raises:
            FlightUnauthenticatedError: the token is missing or unknown.
        """
        values = headers.get("authorization", ())
        if not values and self._anonymous is not None:
            return Caller(self._anonymous)
        if len(values) == 1:
            scheme, _, token = values[0].partition(" ")
            grant = self._tokens.grant(token) if scheme.lower() == "bearer" else None
            if grant is not None:
                return Caller(grant)
        reason = "does not know the token" if values else f"asks for a token ({_WHERE_TOKENS_ARE})"
        raise flight.FlightUnauthenticatedError(
            f"{Refusal.UNAUTHENTICATED}: the stream service {reason}",
            Refusal.UNAUTHENTICATED.encode(),
        )
