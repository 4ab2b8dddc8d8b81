"""Access to the admin process: by a token, a password, or a loopback address.

=====================  =====================================  ==============================
                       health checks                          metrics, the API, the page
=====================  =====================================  ==============================
with tokens or users   for everyone; reasons need one         for those who show one
without (loopback)     for everyone who reaches it            metrics as well, the others not
=====================  =====================================  ==============================

A request is authenticated in one of three ways::

      Authorization: Bearer TOKEN ───────────────────────────────────────▶ the token's role
      Authorization: Basic USER:PASSWORD ─▶ known for a while, or the broker ─▶ the user's role
      a cookie of the page ─▶ its session ─╮
      a CSRF token, if it changes something ─┴─▶ the user's role

Where neither tokens nor users are set, the request must name this machine as its host. Else a page
in a browser here could have its own name resolved to the loopback address, and read the answers.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final, NamedTuple, final

from starlette.requests import Request

from penstock.admin.logins import ASKED_TOO_OFTEN, HttpRefusal, Logins, address_of
from penstock.admin.rate_limiter import RateLimiter
from penstock.admin.sessions import Session, key_of
from penstock.auth.admin_tokens import AdminGrant, AdminTokens
from penstock.errors import PenstockError

COOKIE: Final = "penstock_session"
SECURE_COOKIE: Final = "__Host-penstock_session"
CSRF_HEADER: Final = "x-csrf-token"
"""The header in which a request of the page that changes something has the session's CSRF token."""

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_OURS: Final = frozenset({"", "same-origin", "none"})
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="penstock"'}


class Principal(NamedTuple):
    """The token or user that a request was authenticated with.

    Attributes:
        grant: its name and role.
        by: its name, address and way in, for the log and the event: "alice at 10.0.0.7 (API)".
    """

    grant: AdminGrant
    by: str


@final
class Gate:
    """Authenticates requests, and refuses requests from pages of other sites.

    Args:
        tokens: the accepted tokens; None: there are none.
        logins: the sessions of users and tokens; None: neither tokens nor users are set.
        host: the address that is listened on, as a URL has it.
    """

    def __init__(self, tokens: AdminTokens | None, logins: Logins | None, host: str) -> None:
        self._tokens = tokens
        self._logins = logins
        self._names = _LOOPBACK_NAMES | {host.lower()}

    @property
    def requires_credentials(self) -> bool:
        """Return whether requests must have a token, a password or a session."""
        return self._logins is not None

    def accepts_host(self, host: str) -> bool:
        """Return whether a request with this ``Host`` header may be answered."""
        if self.requires_credentials:
            return True  # a page under another name has none to send
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return name.lower() in self._names

    def recognises(self, request: Request) -> bool:
        """Return whether a request may see why a health check fails; the broker is not asked.

        It may with a valid token, with the cookie of a session that was confirmed within
        ``CONFIRM_S``, and where no credentials are required.
        """
        if self._logins is None:
            return True
        scheme, shown = _authorization(request)
        if scheme == "bearer":
            return self._token_grant(shown) is not None
        found = self._logins.find(cookie_key(request), address_of(request))
        return found is not None and self._logins.is_confirmed(found)

    async def admit(
        self, request: Request, limiter: RateLimiter | None = None, *, acts: bool
    ) -> Principal | HttpRefusal:
        """Authenticate a request; return its token or user, or why it is refused.

        Args:
            request: the request.
            limiter: counts the requests of each token or user, before the broker is asked about
                one; None: they are not counted.
            acts: whether it changes something: then the broker is asked about a user each time.
        """
        logins = self._logins
        if logins is None:
            return HttpRefusal(403, "this needs admin.users or admin.token_file, which say who may")
        address = address_of(request)
        scheme, shown = _authorization(request)
        try:
            if scheme == "bearer":
                grant = self._token_grant(shown)
                if grant is not None:
                    if limiter is not None and not limiter.allow(grant.name):
                        return ASKED_TOO_OFTEN
                    return Principal(grant, f"{grant.name} at {address} (API)")
            elif scheme == "basic":
                pair = _name_and_password(shown)
                if pair is not None:
                    found = await logins.by_password(*pair, address, limiter, acts=acts)
                    if isinstance(found, HttpRefusal):
                        return found
                    return Principal(found.grant, f"{found.grant.name} at {address} (API)")
            else:
                return await self._by_cookie(request, logins, address, limiter, acts=acts)
        except PenstockError as error:
            return HttpRefusal(503, str(error))
        return HttpRefusal(401, "the token or the user name and password are wrong", _CHALLENGE)

    async def _by_cookie(
        self,
        request: Request,
        logins: Logins,
        address: str,
        limiter: RateLimiter | None,
        *,
        acts: bool,
    ) -> Principal | HttpRefusal:
        key = cookie_key(request)
        session = logins.find(key, address)
        if session is None:
            return HttpRefusal(401, "this asks for a token or a login", _CHALLENGE)
        if not is_ours(request):
            return HttpRefusal(403, "a page of another site asks")
        if acts and not has_csrf_token(request, session):
            return HttpRefusal(403, f"an act of the page needs its {CSRF_HEADER} header")
        if limiter is not None and not limiter.allow(session.grant.name):
            return ASKED_TOO_OFTEN
        if not await logins.confirm(key, session, acts=acts):
            return HttpRefusal(
                401, "the session ended: the user may not be here any more", _CHALLENGE
            )
        return Principal(session.grant, f"{session.grant.name} at {address} (page)")

    def _token_grant(self, token: str) -> AdminGrant | None:
        return None if self._tokens is None else self._tokens.grant(token)


def is_ours(request: Request) -> bool:
    """Return whether a request of a browser comes from our own page, or from no page."""
    return request.headers.get("sec-fetch-site", "") in _OURS


def has_csrf_token(request: Request, session: Session) -> bool:
    """Return whether a request has the CSRF token of its session."""
    shown = request.headers.get(CSRF_HEADER, "").encode("utf-8", "surrogatepass")
    return hmac.compare_digest(shown, session.csrf_token.encode())


def cookie_name(request: Request) -> str:
    """Return the name of the cookie: with TLS one that only this host over TLS can set."""
    return SECURE_COOKIE if request.url.scheme == "https" else COOKIE


def cookie_key(request: Request) -> bytes:
    """Return the key of the session that a request's cookie names."""
    return key_of(request.cookies.get(cookie_name(request), ""))


def _authorization(request: Request) -> tuple[str, str]:
    """Return the scheme of the ``Authorization`` header, in lower case, and its credentials."""
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    return scheme.lower(), shown.strip()


def _name_and_password(shown: str) -> tuple[str, str] | None:
    """Return user name and password of a Basic header (RFC 7617); None where it is malformed."""
    try:
        text = base64.b64decode(shown, validate=True).decode()
    except (ValueError, binascii.Error):
        return None
    name, colon, password = text.partition(":")
    return (name, password) if colon else None
