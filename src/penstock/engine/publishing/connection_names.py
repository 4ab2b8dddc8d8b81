"""The name of a session's last connection, by which an older copy of either end is noticed.

What the two ends of a session have on disk belongs together: packet identifiers in use, messages
that were delivered. After the store of one end was put back from an older copy it does not, and
MQTT shows nothing of that: a QoS 2 message that was delivered comes again, and a new message whose
packet identifier the other end still holds is taken for a repeat, and lost. So an end that dials
with a store (an outbox, a bridge) names each connection, and both ends store the name::

      CONNECT   penstock-connection: 8-90d1c36b77aa 7-4be1d0c7a2f9    this one, and the last one
      CONNACK   penstock-connection: 8-90d1c36b77aa

The dialling end stores a name before CONNECT is sent, and each attempt has another one, until a
CONNACK accepts it: whether an earlier attempt was accepted is not known to it. So it tells all of
them, and the last accepted one behind them. The accepting end stores the name with the session::

      the accepting end has …                        verdict
      nothing: a new session, an older version ────▶ SAME
      a name that is told ─────────────────────────▶ SAME
      one before the last that the dialler knows ──▶ SERVER_OLDER     or PARTED
      another one ─────────────────────────────────▶ DIALLER_OLDER    or PARTED

An older end is refused, in a sentence, until an operator accepts the copy: a new epoch of its log
(``penstock store fork``, ``penstock store restore``) makes it PARTED, and so does a new outbox.
Then both ends forget which QoS 2 messages they received; what the older end sends once more may
come twice, and is logged.

A copy of a running end that is put back before the next connection knows its name. So CONNACK also
tells which QoS 2 messages the accepting end has received and not released::

      CONNACK   penstock-unreleased: 5 7 9

The dialling end has all of them in its window, or it is an older copy: then it releases what it
does not know (``dialling.packet_id_cleanup``), so that no new message is taken for a repeat. Other
brokers, and versions before MQTT 5, do not take part.

Names are stored like the numbers of producers (``producers``), among those of the session's user,
under names that no client can have; they end with the session. Where the limits of producers leave
no room, the session does not take part.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, final

from penstock.engine.clock import Now
from penstock.engine.limits import PACKET_IDENTIFIERS
from penstock.engine.publishing.producers import (
    NAME_CHARACTERS_MAX,
    USER_CHARACTERS_MAX,
    Producers,
    ProducerSequence,
)
from penstock.engine.routing.session_registry import SessionEnds
from penstock.engine.session.session import Session
from penstock.protocol.properties import Properties

CONNECTION: Final = "penstock-connection"
"""The user property of CONNECT and CONNACK."""

UNRELEASED: Final = "penstock-unreleased"
"""The user property of CONNACK with packet identifiers of received QoS 2 messages."""

UNRELEASED_MAX: Final = 500
"""Greatest number of packet identifiers in it."""

PARTED_MARK: Final = "parted"
"""In CONNECT: an operator accepted the older copy. In CONNACK: what was received is forgotten."""

# The verdict of the accepting end.
SAME: Final = 0
PARTED: Final = 1
DIALLER_OLDER: Final = 2
SERVER_OLDER: Final = 3

ATTEMPTS_MAX: Final = 8
"""Greatest number of attempts without CONNACK that have a name each; later ones share the last."""

_PREFIX: Final = "\0"  # no producer's name of a client may contain it [MQTT-1.5.4-2]
_NAME: Final = r"[0-9]{1,18}-[0-9a-f]{12}"
_TOLD: Final = re.compile(rf"({_NAME}(?: {_NAME}){{0,{ATTEMPTS_MAX}}})( {PARTED_MARK})?")

_IDS: Final = re.compile(rf"[1-9][0-9]{{0,4}}(?: [1-9][0-9]{{0,4}}){{0,{UNRELEASED_MAX - 1}}}")


class ConnectionName(NamedTuple):
    """The name of a connection: its number in its session, and random hexadecimal characters."""

    number: int
    random: str

    def __str__(self) -> str:
        return f"{self.number}-{self.random}"


class ToldNames(NamedTuple):
    """The connections of a session that one end tells.

    Attributes:
        names: in CONNECT the attempts without CONNACK, the present one first, and behind them the
            last accepted connection; in CONNACK the present one.
        is_parted: see ``PARTED_MARK``.
    """

    names: tuple[ConnectionName, ...]
    is_parted: bool = False

    @property
    def this(self) -> ConnectionName:
        """Return the connection that begins."""
        return self.names[0]

    @property
    def last(self) -> ConnectionName:
        """Return the last accepted connection."""
        return self.names[-1]

    def __str__(self) -> str:
        names = " ".join([str(name) for name in self.names])
        return f"{names} {PARTED_MARK}" if self.is_parted else names


NO_CONNECTION: Final = ConnectionName(0, "0" * 12)
"""The last accepted connection of a session that has had none."""


def told_names(properties: Properties | None) -> ToldNames | None:
    """Return the names in the properties of a CONNECT or CONNACK; None if there are none."""
    if properties is None or properties.user_properties is None:
        return None
    for name, value in properties.user_properties:
        if name == CONNECTION:
            return parse_names(value)
    return None


def parse_names(text: str) -> ToldNames | None:
    """Return the names in ``text``; None if it is something else."""
    found = _TOLD.fullmatch(text)
    if found is None:
        return None
    names: list[ConnectionName] = []
    for name in found[1].split(" "):
        number, _, random = name.partition("-")
        names.append(ConnectionName(int(number), random))
    return ToldNames(tuple(names), found[2] is not None)


def unknown_ids(properties: Properties | None, session: Session) -> list[int]:
    """Return the packet identifiers in the properties of a CONNACK that ``session``, the one of the
    dialling end, does not have in its window."""
    if properties is None or properties.user_properties is None:
        return []
    window = session.transmission.window
    for name, value in properties.user_properties:
        if name == UNRELEASED and _IDS.fullmatch(value) is not None:
            numbers = [int(number) for number in value.split(" ")]
            return [
                number
                for number in numbers
                if number <= PACKET_IDENTIFIERS and window.get(number) is None
            ]
    return []


def judge_names(known: ConnectionName | None, told: ToldNames, is_forked: bool) -> int:
    """Return the verdict of the accepting end: ``SAME`` … ``SERVER_OLDER``.

    Args:
        known: the name of the session's last connection here; None if there is none.
        told: the connections that the dialling end tells.
        is_forked: whether the log here has a new epoch since ``known`` was stored.
    """
    if known is None or known in told.names:
        return SAME
    is_server_older = known.number < told.last.number
    if is_forked if is_server_older else told.is_parted:
        return PARTED
    return SERVER_OLDER if is_server_older else DIALLER_OLDER


def refusal_sentence(verdict: int, known: ConnectionName, told: ToldNames) -> str:
    """Return the sentence for an older end that is refused, at most 200 characters."""
    here, there = known.number, told.last.number
    if verdict == SERVER_OLDER:
        return (
            f"an older copy of this broker's data directory was put back: connection {here} of this"
            f" session was the last here, {there} there; 'penstock store fork' on it goes on"
        )
    return (
        f"an older copy of this client's store was put back: connection {there} was its last,"
        f" {here} is the last here; 'penstock store fork' on it goes on and repeats messages"
    )


@final
class ConnectionNames(SessionEnds):
    """The last connection of each session, as one end has stored it.

    Args:
        producers: stores the names.
    """

    def __init__(self, producers: Producers) -> None:
        self._producers = producers

    # -- the accepting end -------------------------------------------------------------

    def judge(
        self, username: str | None, client_id: str, told: ToldNames, epoch: str
    ) -> tuple[int, str]:
        """Return the verdict on a CONNECT that resumes a session, and the sentence of a refusal.

        Args:
            username: the user of the session.
            client_id: its client identifier.
            told: the connections that the CONNECT tells.
            epoch: the present epoch of the log.
        """
        stored_epoch, names = self._stored(username, client_id)
        known = None if names is None else names.last
        verdict = judge_names(known, told, stored_epoch != epoch)
        if known is None or verdict in (SAME, PARTED):
            return verdict, ""
        return verdict, refusal_sentence(verdict, known, told)

    def accept(
        self, username: str | None, client_id: str, told: ToldNames, epoch: str, now: Now
    ) -> bool:
        """Store the name of the connection that begins; return False if there is no room."""
        if not self._has_room(username, client_id):
            return False
        self._store(username, client_id, epoch, (told.this,), now)
        return True

    # -- the dialling end --------------------------------------------------------------

    def next_names(
        self, client_id: str, epoch: str, random: str, is_new: bool, now: Now
    ) -> ToldNames | None:
        """Store and return the names for the next CONNECT; None if there is no room.

        Args:
            client_id: the client identifier of the session at this end.
            epoch: the present epoch of the log.
            random: 12 random hexadecimal characters, for a new name.
            is_new: whether this end has a new store, which is no copy, for a session that the other
                end may have.
            now: the time of the turn.
        """
        stored_epoch, stored = self._stored(None, client_id)
        names: tuple[ConnectionName, ...] = (NO_CONNECTION,)
        if stored is not None:
            names = stored.names
        elif self._has_room(None, client_id):
            stored_epoch = epoch
        else:
            return None
        if len(names) <= ATTEMPTS_MAX:
            names = (ConnectionName(names[-1].number + 1, random), *names)
        self._store(None, client_id, stored_epoch, names, now)
        return ToldNames(names, is_new or stored_epoch != epoch)

    def accepted(self, client_id: str, name: ConnectionName, epoch: str, now: Now) -> None:
        """Store that a CONNACK accepted the connection with this name."""
        self._store(None, client_id, epoch, (name,), now)

    # -- stored ------------------------------------------------------------------------

    def on_session_end(self, session: Session) -> None:
        """Forget the name of the last connection of ``session``."""
        self._producers.forget(session.username, _PREFIX + session.client_id)

    def _has_room(self, username: str | None, client_id: str) -> bool:
        is_short = len(client_id) < NAME_CHARACTERS_MAX
        user = username or ""
        return (
            is_short
            and len(user) <= USER_CHARACTERS_MAX
            and self._producers.has_room(user, _PREFIX + client_id)
        )

    def _stored(self, username: str | None, client_id: str) -> tuple[str, ToldNames | None]:
        """Return the epoch of the log when the names were stored, and the names."""
        mark = self._producers.latest_mark(username, _PREFIX + client_id)
        epoch, _, text = mark.partition(" ")
        return epoch, parse_names(text)

    def _store(
        self,
        username: str | None,
        client_id: str,
        epoch: str,
        names: tuple[ConnectionName, ...],
        now: Now,
    ) -> None:
        name = _PREFIX + client_id
        number = self._producers.latest(username, name) + 1
        mark = f"{epoch} {ToldNames(names)}"
        self._producers.record_published(username, ProducerSequence(name, number, mark=mark), now)
