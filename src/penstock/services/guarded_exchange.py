"""An exchange of enhanced authentication whose failures count like wrong passwords.

A step of SCRAM is cheap for the broker, and as good for guessing as a password. So the login guard
is asked before anything is answered, with the client's address; as soon as the user name is known;
and once more before a proof is verified, for many exchanges may be under way when the first one
fails.
"""

from __future__ import annotations

from typing import final

from penstock.auth.scram import ScramExchange
from penstock.engine.values.access import CONTINUE, FAILURE, SUCCESS, Exchange, Step
from penstock.protocol import reasons
from penstock.services.login_guard import LoginGuard, T


@final
class GuardedExchange(Exchange):
    """One exchange of SCRAM whose failures are counted.

    Args:
        inner: the exchange without counting.
        guard: the login guard, which counts failures.
        address: the client's address.
    """

    def __init__(self, inner: ScramExchange, guard: LoginGuard[T], address: str) -> None:
        self._inner = inner
        self._may_try = guard.may_try
        self._count_failure = guard.count_failure
        self._count_success = guard.count_success
        self._address = address

    def step(self, data: bytes | None) -> Step:
        """Return the next step for the client's message ``data``; a failure with
        ``CONNECTION_RATE_EXCEEDED`` if its address or user name failed too often."""
        inner = self._inner
        if not self._may_try(self._address, inner.username):
            return _refusal_step()
        is_first = not inner.username
        step = inner.step(data)
        if step.outcome == CONTINUE and not self._may_try(self._address, inner.username):
            return _refusal_step()
        if step.outcome == SUCCESS:
            self._count_success(self._address, inner.username)
        elif step.outcome == FAILURE and not is_first:  # the first message has no proof
            self._count_failure(self._address, inner.username)
        return step


def _refusal_step() -> Step:
    return Step(FAILURE, reason_code=reasons.CONNECTION_RATE_EXCEEDED)
