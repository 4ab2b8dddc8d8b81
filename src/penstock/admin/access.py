"""Access to what the admin process tells and does: by a token, a password, or a loopback address.

=====================  =====================================  ==============================
                       health checks                          metrics, the API, the page
=====================  =====================================  ==============================
with tokens or users   for everyone; reasons need one         for those who show one
without (loopback)     for everyone who reaches it            metrics as well, the others not
=====================  =====================================  ==============================

A request shows who asks in one of three ways::

      Authorization: Bearer TOKEN ───────────────────────────────────────▶ the token's role
      Authorization: Basic USER:PASSWORD ─▶ known for a while, or the broker ─▶ the user's role
      a cookie of the page ─▶ its session ─╮
      a token that no page of others can read, if it acts ─┴─▶ the user's role

Where none is asked for, the request must name this machine as its host. Else a page in a browser
here could have its own name resolved to the loopback address, and read the answers.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final, NamedTuple, final

from starlette.requests import Request

from penstock.admin.logins import ASKED_TOO_OFTEN, Logins, Refusal, address_of
from penstock.admin.rates import Rates
from penstock.admin.sessions import Session, key_of
from penstock.auth.admin_tokens import AdminGrant, AdminTokens
from penstock.errors import PenstockError

COOKIE: Final = "penstock_session"
SECURE_COOKIE: Final = "__Host-penstock_session"
ACT_HEADER: Final = "x-penstock-act"
"""The header with which an act of the page shows that it is the page's."""

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_OURS: Final = frozenset({"", "same-origin", "none"})
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="penstock"'}


class Admitted(NamedTuple):
    """Somebody who may ask.

    Attributes:
        grant: its name and role.
        by: the name of the one that acts, for the log and the event.
    """

    grant: AdminGrant
    by: str


@final
class Gate:
    """Decides about requests.

    Args:
        tokens: the accepted tokens; None: there are none.
        logins: lets users in; None: there are none.
        host: the address that is listened on, as a URL has it.
    """

    def __init__(self, tokens: AdminTokens | None, logins: Logins | None, host: str) -> None:
        self._tokens = tokens
        self._logins = logins
        self._names = _LOOPBACK_NAMES | {host.lower()}

    @property
    def asks(self) -> bool:
        """Return whether it asks for tokens or passwords."""
        return self._logins is not None

    def names_us(self, host: str) -> bool:
        """Return whether a ``Host`` header may be answered."""
        if self.asks:
            return True  # who has a token means us
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return name.lower() in self._names

    def recognises(self, request: Request) -> bool:
        """Return whether a request shows what is asked for, without asking the broker."""
        if self._logins is None:
            return True
        scheme, shown = _authorization(request)
        if scheme == "bearer":
            return self._token_grant(shown) is not None
        found = self._logins.find(cookie_key(request), address_of(request))
        return found is not None and self._logins.is_confirmed(found)

    async def admit(
        self, request: Request, rates: Rates | None = None, *, acts: bool
    ) -> Admitted | Refusal:
        """Return who asks, or why that is not known.

        Args:
            request: the request.
            rates: counts the requests of each token or user, before the broker is asked about one;
                None: they are not counted.
            acts: whether it changes something: then the broker is asked about a user each time.
        """
        logins = self._logins
        if logins is None:
            return Refusal(403, "this needs admin.users or admin.token_file, which say who may")
        address = address_of(request)
        scheme, shown = _authorization(request)
        try:
            if scheme == "bearer":
                grant = self._token_grant(shown)
                if grant is not None:
                    if rates is not None and not rates.may(grant.name):
                        return ASKED_TOO_OFTEN
                    return Admitted(grant, f"{grant.name} at {address} (API)")
            elif scheme == "basic":
                pair = _name_and_password(shown)
                if pair is not None:
                    found = await logins.by_password(*pair, address, rates, acts=acts)
                    if isinstance(found, Refusal):
                        return found
                    return Admitted(found.grant, f"{found.grant.name} at {address} (API)")
            else:
                return await self._by_cookie(request, logins, address, rates, acts=acts)
        except PenstockError as error:
            return Refusal(503, str(error))
        return Refusal(401, "the token or the user name and password are wrong", _CHALLENGE)

    async def _by_cookie(
        self, request: Request, logins: Logins, address: str, rates: Rates | None, *, acts: bool
    ) -> Admitted | Refusal:
        key = cookie_key(request)
        session = logins.find(key, address)
        if session is None:
            return Refusal(401, "this asks for a token or a login", _CHALLENGE)
        if not is_ours(request):
            return Refusal(403, "a page of another site asks")
        if acts and not shows_act_secret(request, session):
            return Refusal(403, f"an act of the page needs its {ACT_HEADER} header")
        if rates is not None and not rates.may(session.grant.name):
            return ASKED_TOO_OFTEN
        if not await logins.confirm(key, session, acts=acts):
            return Refusal(401, "the session ended: the user may not be here any more", _CHALLENGE)
        return Admitted(session.grant, f"{session.grant.name} at {address} (page)")

    def _token_grant(self, token: str) -> AdminGrant | None:
        return None if self._tokens is None else self._tokens.grant(token)


def is_ours(request: Request) -> bool:
    """Return whether a request of a browser comes from our own page, or from no page."""
    return request.headers.get("sec-fetch-site", "") in _OURS


def shows_act_secret(request: Request, session: Session) -> bool:
    """Return whether a request has the second secret of its session."""
    shown = request.headers.get(ACT_HEADER, "").encode("utf-8", "surrogatepass")
    return hmac.compare_digest(shown, session.act_secret.encode())


def cookie_name(request: Request) -> str:
    """Return the name of the cookie: with TLS one that only this host over TLS can set."""
    return SECURE_COOKIE if request.url.scheme == "https" else COOKIE


def cookie_key(request: Request) -> bytes:
    """Return the key of the session that a request's cookie names."""
    return key_of(request.cookies.get(cookie_name(request), ""))


def _authorization(request: Request) -> tuple[str, str]:
    """Return the scheme of the ``Authorization`` header, in lower case, and what it shows."""
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    return scheme.lower(), shown.strip()


def _name_and_password(shown: str) -> tuple[str, str] | None:
    """Return what a Basic header has (RFC 7617); None where it has not."""
    try:
        text = base64.b64decode(shown, validate=True).decode()
    except (ValueError, binascii.Error):
        return None
    name, colon, password = text.partition(":")
    return (name, password) if colon else None
