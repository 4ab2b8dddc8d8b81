"""The addresses of one server or cluster: chooses the next address to dial, and the pause before.

::

      a ─ fails ─▶ b ─ fails ─▶ c ─ fails ─▶ the round is over: a pause (``backoff``) ─▶ a …
      ╰─ "use c" ──────────────▲

The addresses lead to one session: at most one server of a cluster accepts us, and the others refuse
us, perhaps with the address of that server (Server Reference, MQTT 5 §4.11). So the next address
is dialled at once, after a fraction of a second that differs between clients, and the growing pause
follows when all addresses have been tried. In a *round* no address is dialled twice, so that
servers that refer to each other cannot keep a client dialling without a pause.

After a connection that lasted ``STABLE_S``, a round begins with the address after the lost one,
which is dialled last: its machine may have failed, which only ``connect_timeout_s`` would show. A
shorter connection counts as one more failure of its round, so two clients with the same identifier,
or a server that ends each connection, cause no storm.

Following a reference sends our user name and password to the server that it names. A reference to
one of the given addresses is always followed, other references only with ``follows_references``. No
reference is followed from TLS to a connection without TLS, and another server's certificate is
checked for that server's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final

from penstock.config.address import Address
from penstock.config.remote_url import PORTS, RemoteUrl
from penstock.protocol import reasons
from penstock.transport.backoff import STABLE_S, Backoff

REFERENCES_MAX: Final = 5
"""Largest number of servers dialled in one round that are not among the given addresses."""

_NAMES_MAX: Final = 16  # names of one Server Reference that are read
_OTHER_SERVER: Final = (reasons.USE_ANOTHER_SERVER, reasons.SERVER_MOVED)
_LOGIN_REFUSED: Final = frozenset(
    (
        reasons.BAD_USER_NAME_OR_PASSWORD,
        reasons.NOT_AUTHORIZED,
        reasons.BANNED,
        reasons.BAD_AUTHENTICATION_METHOD,
        reasons.CLIENT_IDENTIFIER_NOT_VALID,
        reasons.UNSUPPORTED_PROTOCOL_VERSION,
    )
)
"""Reason codes whose cause only a person can remove: dialling again soon would not help."""

_SESSION_ENDED: Final = (reasons.SESSION_TAKEN_OVER, reasons.ADMINISTRATIVE_ACTION)
"""Reason codes that concern the session, not the server: dialling another address at once would
only repeat them."""


@final
class ServerAddresses:
    """Chooses the address of each attempt to connect.

    Args:
        urls: the addresses, 1 or more, in the order in which they are tried.
        backoff: computes the pauses between rounds.
        follows_references: whether a server may refer us to a server that is not among ``urls``.

    Attributes:
        urls: the addresses; "server moved" replaces one.
        current: the address of the latest attempt.
        next: the address of the next attempt.
        is_round_over: True if all addresses have been tried since the last pause.
    """

    def __init__(
        self, urls: Sequence[RemoteUrl], backoff: Backoff, follows_references: bool = False
    ) -> None:
        assert urls, "a server has an address"
        self.urls = list(dict.fromkeys(urls))
        self.current = self.urls[0]
        self.next = self.urls[0]
        self.is_round_over = False
        self._backoff = backoff
        self._follows_references = follows_references
        self._first_index = 0  # index of the address with which the round began
        self._tried: set[RemoteUrl] = set()  # in this round
        self._lost_url: RemoteUrl | None = None  # of the connection whose end began this round
        self._references = 0  # followed in this round to servers not among the addresses
        self._login_refused = False  # in this round

    def take(self) -> RemoteUrl:
        """Return the address of the next attempt, which begins now."""
        self.current = self.next
        self._tried.add(self.current)
        return self.current

    # -- ends of an attempt ------------------------------------------------------------------

    def after_failure(self) -> float:
        """Return the pause in seconds after an attempt without an answer, or whose TLS handshake or
        upgrade to WebSocket failed."""
        return self._choose_next(None)

    def after_refusal(self, code: int, reference: str) -> float:
        """Return the pause in seconds after a CONNACK that refused us, or a connection that ended
        before CONNACK.

        Args:
            code: the reason code of CONNACK; 0 if there was none.
            reference: the Server Reference in CONNACK; empty if there was none.
        """
        if code in _LOGIN_REFUSED:
            self._login_refused = True
        return self._choose_next(self._referred_url(code, reference))

    def after_connection(self, code: int, reference: str, lasted_s: float) -> float:
        """Return the pause in seconds after the end of a connection that the server had accepted.

        Args:
            code: the reason code of the server's DISCONNECT; 0 if there was none.
            reference: the Server Reference in DISCONNECT; empty if there was none.
            lasted_s: the duration of the connection, in seconds.
        """
        self._backoff.note_duration(lasted_s)
        self._login_refused = False  # a server of this round accepted us
        if code in _SESSION_ENDED:
            return self.pause()
        if lasted_s >= STABLE_S:
            index = self.urls.index(self.current) if self.current in self.urls else -1
            self._begin_round((index + 1) % len(self.urls))
            self._lost_url = self.current
            if self.urls == [self.current]:
                self._tried.add(self.current)
        return self._choose_next(self._referred_url(code, reference))

    def pause(self, is_longest: bool = False) -> float:
        """Return a pause in seconds after which the current address is dialled again: the end of
        the connection was not due to the address."""
        return self._end_round(self.current, is_longest)

    def redial(self) -> float:
        """Choose the current address again; return the pause, 0.0."""
        self.next = self.current
        self.is_round_over = False
        return 0.0

    # -- the choice ---------------------------------------------------------------------------

    def _choose_next(self, referred_url: RemoteUrl | None) -> float:
        url = referred_url or self._untried_url()
        if url is not None:
            self.next = url
            self.is_round_over = False
            return self._backoff.before_next_address()
        return self._end_round(self.urls[0], self._login_refused)

    def _end_round(self, next_url: RemoteUrl, is_longest: bool) -> float:
        self._begin_round(0)
        self.is_round_over = True
        self.next = next_url
        return self._backoff.jump_to_longest() if is_longest else self._backoff.after_failure()

    def _begin_round(self, first: int) -> None:
        self._first_index = first
        self._tried.clear()
        self._lost_url = None
        self._references = 0
        self._login_refused = False

    def _untried_url(self) -> RemoteUrl | None:
        for url in self.urls[self._first_index :] + self.urls[: self._first_index]:
            if url not in self._tried:
                return url
        return None

    def _referred_url(self, code: int, reference: str) -> RemoteUrl | None:
        """Return the first address of a Server Reference that may be dialled now; None if there is
        none.

        With "server moved" an address that is not in ``urls`` replaces the current one there.
        """
        if code not in _OTHER_SERVER:
            return None
        for name in reference.split(maxsplit=_NAMES_MAX)[:_NAMES_MAX]:
            for url in self._urls_of(name):
                if url in self._tried or url == self._lost_url:
                    continue
                self._references += url not in self.urls
                if code == reasons.SERVER_MOVED and url not in self.urls:
                    self.urls = [url if one == self.current else one for one in self.urls]
                return url
        return None

    def _urls_of(self, name: str) -> Iterator[RemoteUrl]:
        """Yield the addresses that a name in a Server Reference may refer to: HOST, HOST:PORT,
        [IPV6] or [IPV6]:PORT."""
        has_port = name.rpartition("]")[2].count(":") == 1
        try:
            place = Address.parse(name if has_port else f"{name}:{PORTS['mqtt']}")
        except ValueError:
            return
        if place.port == 0:
            return
        host = place.host.lower()
        for url in self.urls:
            if (
                isinstance(url.address, Address)
                and url.address.host.lower() == host
                and (not has_port or url.address.port == place.port)
                and (url.is_encrypted or not self.current.is_encrypted)
            ):
                yield url
        scheme = self.current.scheme
        if self._follows_references and self._references < REFERENCES_MAX and scheme in PORTS:
            port = place.port if has_port else PORTS[scheme]
            yield RemoteUrl(scheme, Address(place.host, port), self.current.path)
