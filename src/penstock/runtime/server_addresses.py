"""The addresses of one server or cluster: the next one to dial, and the pause before that.

::

      a ─ fails ─▶ b ─ fails ─▶ c ─ fails ─▶ the round is over: a pause (``backoff``) ─▶ a …
      ╰─ "use c" ──────────────▲

The addresses lead to one session: of a cluster at most one server accepts us, and the others refuse
us, perhaps with the address of that one (Server Reference, MQTT 5 §4.11). So the next address
follows at once, after a fraction of a second that differs from client to client, and the pause that
grows comes when each has been tried. In a *round* no address is dialled twice: servers that name
each other end in that pause.

After a connection that stood for ``STABLE_S``, a round begins with the address behind the lost one,
which is dialled last: its machine may be gone, and finding that out takes ``connect_timeout_s``. A
shorter connection is one more failure of its round, so two clients with one identifier, or a server
that ends each connection, cause no storm.

A reference sends our user name and password to the server that it names. One that names an address
which the user gave is followed in any case, others only with ``follows_references``. Neither leads
from TLS to a connection without: then a reference to an unencrypted address is not followed, and
another server's certificate is checked for its own name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final

from penstock.config.address import Address
from penstock.config.remote_url import PORTS, RemoteUrl
from penstock.protocol import reasons
from penstock.transport.backoff import STABLE_S, Backoff

REFERENCES_MAX: Final = 5
"""Servers that are not among the addresses and are dialled in one round."""

_NAMES_MAX: Final = 16  # of one Server Reference; what comes behind them is not read
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
"""Refusals whose cause only a person can remove: dialling again soon would not help."""

_OF_THE_SESSION: Final = (reasons.SESSION_TAKEN_OVER, reasons.ADMINISTRATIVE_ACTION)
"""Ends that every address would lead to: to dial the next one at once would be to fight."""


@final
class ServerAddresses:
    """Chooses the address of each attempt to connect.

    Args:
        urls: the addresses, 1 or more, in the order in which they are tried.
        backoff: computes the pauses between rounds.
        follows_references: whether a server may send us to one that is not among ``urls``.
    """

    def __init__(
        self, urls: Sequence[RemoteUrl], backoff: Backoff, follows_references: bool = False
    ) -> None:
        assert urls, "a server has an address"
        self.urls = list(dict.fromkeys(urls))
        self.current = self.urls[0]  # of the latest attempt
        self.next = self.urls[0]  # of the attempt that follows
        self.is_round_over = False  # each address has been tried since the last pause
        self._backoff = backoff
        self._follows_references = follows_references
        self._first = 0  # index of the address with which the round began
        self._tried: set[RemoteUrl] = set()  # in this round
        self._lost: RemoteUrl | None = None  # had the connection that this round is to replace
        self._references = 0  # followed in this round to servers that are not among the addresses
        self._login_refused = False  # in this round

    def take(self) -> RemoteUrl:
        """Return the address of the attempt that begins now."""
        self.current = self.next
        self._tried.add(self.current)
        return self.current

    # -- ends of an attempt: each returns the pause before the next one, seconds -------------

    def unreachable(self) -> float:
        """Note that there was no answer, or that TLS or the upgrade to WebSocket failed."""
        return self._go_on(None)

    def refused(self, code: int, reference: str) -> float:
        """Note that CONNACK refused us, or that the connection ended before it came.

        Args:
            code: reason code of CONNACK; 0 if there was none.
            reference: Server Reference in it; empty if there was none.
        """
        if code in _LOGIN_REFUSED:
            self._login_refused = True
        return self._go_on(self._referred(code, reference))

    def ended(self, code: int, reference: str, lasted_s: float) -> float:
        """Note that a connection ended which the server had accepted.

        Args:
            code: reason code of the server's DISCONNECT; 0 if there was none.
            reference: Server Reference in it; empty if there was none.
            lasted_s: how long it stood, seconds.
        """
        self._backoff.note_duration(lasted_s)
        self._login_refused = False  # not by all of them
        if code in _OF_THE_SESSION:
            return self.pause()
        if lasted_s >= STABLE_S:
            place = self.urls.index(self.current) if self.current in self.urls else -1
            self._begin_round((place + 1) % len(self.urls))
            self._lost = self.current
            if self.urls == [self.current]:
                self._tried.add(self.current)
        return self._go_on(self._referred(code, reference))

    def pause(self, is_longest: bool = False) -> float:
        """Return a pause, after which the current address is dialled again: the address is not
        to blame."""
        return self._end_round(self.current, is_longest)

    def same_again(self) -> float:
        """Dial the current address again, at once."""
        self.next = self.current
        self.is_round_over = False
        return 0.0

    # -- the choice ---------------------------------------------------------------------------

    def _go_on(self, referred: RemoteUrl | None) -> float:
        chosen = referred or self._untried()
        if chosen is not None:
            self.next = chosen
            self.is_round_over = False
            return self._backoff.before_next_address()
        return self._end_round(self.urls[0], self._login_refused)

    def _end_round(self, following: RemoteUrl, is_longest: bool) -> float:
        self._begin_round(0)
        self.is_round_over = True
        self.next = following
        return self._backoff.jump_to_longest() if is_longest else self._backoff.after_failure()

    def _begin_round(self, first: int) -> None:
        self._first = first
        self._tried.clear()
        self._lost = None
        self._references = 0
        self._login_refused = False

    def _untried(self) -> RemoteUrl | None:
        for url in self.urls[self._first :] + self.urls[: self._first]:
            if url not in self._tried:
                return url
        return None

    def _referred(self, code: int, reference: str) -> RemoteUrl | None:
        """Return the first server of a Server Reference that may be dialled now.

        With "server moved" one that is not among the addresses takes the current one's place.
        """
        if code not in _OTHER_SERVER:
            return None
        for name in reference.split(maxsplit=_NAMES_MAX)[:_NAMES_MAX]:
            for url in self._named(name):
                if url in self._tried or url == self._lost:
                    continue
                self._references += url not in self.urls
                if code == reasons.SERVER_MOVED and url not in self.urls:
                    self.urls = [url if one == self.current else one for one in self.urls]
                return url
        return None

    def _named(self, name: str) -> Iterator[RemoteUrl]:
        """Yield the addresses that a name in a Server Reference may mean: HOST, HOST:PORT, [IPV6]
        or [IPV6]:PORT."""
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
