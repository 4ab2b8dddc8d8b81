"""Authentication: the port that checks the credentials of a CONNECT.

It answers at once, or later if that takes time (a password hash is slow on purpose)::

      CONNECT ─▶ check_credentials ── AuthResult ──────────────────────────▶ CONNACK
                   ╰──── None ─▶ AWAIT_VERDICT ─▶ apply_late_verdict ──────▶ CONNACK

      CONNECT with a method ─▶ begin_exchange ─▶ step ── CONTINUE ─▶ AUTH 0x18 ─▶ step …
                                                   ├──── SUCCESS ──▶ CONNACK, AUTH 0x00
                                                   ╰──── FAILURE ──▶ CONNACK, DISCONNECT

The second picture is the enhanced authentication of MQTT 5 §4.12. The class here accepts all
clients.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from penstock.engine.values.access import AuthResult, Credentials, Exchange
from penstock.engine.wire.link import Link
from penstock.protocol import reasons


@mypyc_attr(allow_interpreted_subclasses=True)
class Authenticate:
    """The port that checks credentials."""

    def check_credentials(self, credentials: Credentials, link: Link) -> AuthResult | None:
        """Return whether these credentials are accepted, as an ``AuthResult``; None if that takes
        time.

        After None the implementation calls ``ServerConnection.apply_late_verdict`` later, for the
        connection that ``link`` identifies, unless the link was closed meanwhile.
        """
        del credentials, link
        return AuthResult(reasons.SUCCESS)

    def begin_exchange(self, method: str, credentials: Credentials) -> Exchange | None:
        """Begin a run of the authentication ``method`` and return it; None if it is not offered.

        When a client re-authenticates, ``credentials`` has only its client identifier and address.
        """
        del method, credentials
        return None
