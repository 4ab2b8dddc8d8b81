"""Logins of operators: the broker's own users, with a role, checked for the admin process.

::

      LogIn ─▶ banned? ─▶ check the password as a client's (``authentication``) ─▶ role ─▶ Login
      ConfirmLogin ─▶ banned? removed? another password? no role any more? ─▶ role, or empty

A password is checked before the role is looked up, so that an answer's delay does not reveal which
users have a role.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from penstock.control.login_requests import (
    BANNED,
    NO_ROLE,
    TOO_OFTEN,
    UNAVAILABLE,
    WRONG_LOGIN,
    ConfirmLogin,
    LogIn,
    LoginOutcome,
)
from penstock.engine.api import Server
from penstock.engine.values.access import Credentials
from penstock.engine.values.event_kinds import Event
from penstock.operators.admin_actions import note_action
from penstock.protocol import reasons
from penstock.runtime.driver import Driver
from penstock.services.authentication import Authentication
from penstock.services.control import Control
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

_REFUSALS: Final = {
    reasons.BAD_USER_NAME_OR_PASSWORD: WRONG_LOGIN,
    reasons.NOT_AUTHORIZED: WRONG_LOGIN,
    reasons.CONNECTION_RATE_EXCEEDED: TOO_OFTEN,
    reasons.SERVER_BUSY: TOO_OFTEN,
}


@final
class OperatorLogins:
    """Checks the logins of operators; it keeps no state of them.

    Args:
        server: the broker's engine, which has the bans.
        driver: the driver that runs the engine.
        authentication: checks passwords.
        roles: the role of each user, by name (admin.users).
    """

    def __init__(
        self,
        server: Server,
        driver: Driver,
        authentication: Authentication,
        roles: Mapping[str, str],
    ) -> None:
        self.roles = roles
        self._server = server
        self._driver = driver
        self._authentication = authentication

    def role_of(self, user: str) -> str:
        """Return the role of a user; empty for none."""
        return self.roles.get(user, "")

    def serve_on(self, control: Control) -> None:
        """Answer requests on ``control``."""
        control.on(LogIn, self.log_in)
        control.on(ConfirmLogin, self.confirm)

    async def log_in(self, request: LogIn) -> LoginOutcome:
        """Check a password; return the user's role, or the reason of a refusal."""
        if self._is_banned(request.user):
            return LoginOutcome(BANNED)
        credentials = Credentials(
            "", request.user or None, request.password.encode(), False, request.address
        )
        verdict = await self._authentication.verdict(credentials)
        user = verdict.username
        if verdict.reason_code != reasons.SUCCESS or user is None:
            return LoginOutcome(_REFUSALS.get(verdict.reason_code, UNAVAILABLE))
        if self._is_banned(user):
            return LoginOutcome(BANNED)
        role = self.roles.get(user, "")
        if not role:
            logger.info("user '%s' at %s has no role in admin.users", user, request.address)
            return LoginOutcome(NO_ROLE, user)
        self._record_login(user, role, request)
        return LoginOutcome(
            "", user, role, self._authentication.password_fingerprint(user), verdict.lasts_s
        )

    async def confirm(self, request: ConfirmLogin) -> str:
        """Return the present role of an operator who logged in before; empty if the operator was
        banned, was removed, has another password, or has no role any more."""
        if self._is_banned(request.user):
            return ""
        if self._authentication.password_fingerprint(request.user) != request.password_fingerprint:
            return ""
        return self.roles.get(request.user, "")

    def _is_banned(self, user: str) -> bool:
        """Return whether a user is banned. Bans of addresses are for clients of MQTT: none of them
        locks out the operators who could lift it."""
        bans = self._server.bans
        banned = bans.find_ban("", user or None, "", self._driver.now().monotonic_s)
        bans.refused += banned is not None
        return banned is not None

    def _record_login(self, user: str, role: str, request: LogIn) -> None:
        event: Event = {"user": user, "address": request.address, "role": role}
        note_action(self._server, "login", event, f"{user} at {request.address} ({request.via})")
        self._driver.end_turn_soon()
        logger.info(
            "operator '%s' logged in from %s (%s) as %s", user, request.address, request.via, role
        )
