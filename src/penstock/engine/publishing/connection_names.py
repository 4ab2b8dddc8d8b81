"""The name of a session's last connection, by which an older copy of either end is noticed.

What the two ends of a session have on disk belongs together: packet identifiers in use, messages
that were delivered. After the store of one end was put back from an older copy it does not, and
MQTT shows nothing of that: a QoS 2 message that was delivered comes again, and a new message whose
packet identifier the other end still holds is taken for a repeat, and lost. So an end that dials
with a store (an outbox, a bridge) names each connection, and both ends store the name::

      CONNECT   penstock-connection: 1764381972-90d1c36b77aa 1764380011-4be1d0c7a2f9
                                     this one                the last one
      CONNACK   penstock-connection: 1764381972-90d1c36b77aa

A name has the time of its connection (seconds since 1970, later than that of the one before) and
random characters. The dialling end has stored it before CONNECT is sent, and each attempt has
another one until a CONNACK accepts it: whether an earlier attempt was accepted is not known to it.
So it tells all of them, and behind them the last accepted one. The accepting end stores the name
with the session, if the name stands in its CONNACK::

      the accepting end has …                                      verdict
      no name: a new session, or one of an older version ────────▶ SAME
      any name, and one end's log has a new epoch since ─────────▶ PARTED
      a name that is told ───────────────────────────────────────▶ SAME, or PARTED once more
      another one, and the dialling end has no accepted one ─────▶ PARTED
      another one: one end is an older copy ─────────────────────▶ REFUSED

A new epoch (``penstock store fork``, ``penstock store restore``, a reader that comes back to an
older log) says that the copy goes on as it is, and so does a new outbox. A dialling end without an
accepted name is a copy of an older version. PARTED ends forget which QoS 2 messages they received;
what an older end sends once more may come twice, and both log it. PARTED is repeated while the
CONNACK that told it may have been lost.

A copy of a running end that is put back before the next connection knows its name. So CONNACK also
tells which QoS 2 messages the accepting end has received and not released::

      CONNACK   penstock-unreleased: 5 7 9

The dialling end has all of them in its window, or it is an older copy: then it releases what it
does not know (``dialling.packet_id_cleanup``), so that no new message is taken for a repeat. Other
brokers, and versions before MQTT 5, do not take part.

Names are stored as the numbers of producers are, under keys that no producer can have, and end with
their session.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.routing.session_registry import SessionEnds
from penstock.engine.session.session import Session
from penstock.engine.values.clock import MICROSECONDS, Now
from penstock.engine.values.limits import PACKET_IDENTIFIERS
from penstock.engine.values.records import ProducerRecord
from penstock.protocol.properties import Properties

CONNECTION: Final = "penstock-connection"
"""The user property of CONNECT and CONNACK."""

UNRELEASED: Final = "penstock-unreleased"
"""The user property of CONNACK with packet identifiers of received QoS 2 messages."""

UNRELEASED_MAX: Final = 500
"""Greatest number of packet identifiers in it."""

PARTED_MARK: Final = "parted"
"""In CONNECT: the log of the dialling end has a new epoch. In CONNACK: what was received is
forgotten."""

ATTEMPTS_MAX: Final = 16
"""Greatest number of attempts without CONNACK that have a name each; later ones share the last."""

# The verdict of the accepting end.
SAME: Final = 0
PARTED: Final = 1
REFUSED: Final = 2

_KEY: Final = "\0\0"  # and the client identifier; no producer's key begins so [MQTT-1.5.4-2]
_NAME: Final = r"[0-9]{1,10}-[0-9a-f]{12}"  # until the year 2286
_TOLD: Final = re.compile(rf"({_NAME}(?: {_NAME}){{0,{ATTEMPTS_MAX}}})( {PARTED_MARK})?")
_IDS: Final = re.compile(rf"[1-9][0-9]{{0,4}}(?: [1-9][0-9]{{0,4}}){{0,{UNRELEASED_MAX - 1}}}")


class ConnectionName(NamedTuple):
    """The name of a connection: when it began, seconds since 1970, and random characters."""

    second: int
    random: str

    def __str__(self) -> str:
        return f"{self.second}-{self.random}"


NO_CONNECTION: Final = ConnectionName(0, "0" * 12)
"""The last accepted connection of a session that has had none."""


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
        second, _, random = name.partition("-")
        names.append(ConnectionName(int(second), random))
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


def judge_names(known: ToldNames | None, told: ToldNames, is_forked: bool) -> int:
    """Return the verdict of the accepting end: ``SAME``, ``PARTED`` or ``REFUSED``.

    Args:
        known: the last connection of the session here, with the mark of one that was parted; None
            if there is none.
        told: the connections that the dialling end tells.
        is_forked: whether the log here has a new epoch since ``known`` was stored.
    """
    if known is None:
        return SAME
    if is_forked or told.is_parted:
        return PARTED
    if known.this not in told.names:
        return PARTED if told.last == NO_CONNECTION else REFUSED
    return PARTED if known.is_parted and told.last != known.this else SAME


def refusal_sentence(known: ConnectionName, told: ToldNames) -> str:
    """Return the sentence for an older end that is refused, at most 200 characters."""
    return (
        "an older copy of the data at one end was put back: the last connection of this session"
        f" was {_time_of(known)} here, {_time_of(told.last)} there; 'penstock store fork' on the"
        " older end goes on"
    )


def _time_of(name: ConnectionName) -> str:
    if name == NO_CONNECTION:
        return "none"
    return datetime.fromtimestamp(name.second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@final
class ConnectionNames(SessionEnds):
    """The last connection of each session that takes part, as one end has stored it.

    Args:
        context: the parts of the broker, or of the client library, that it acts on.
    """

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._records: dict[str, ProducerRecord] = {}  # by client identifier

    def recover(self, found: list[ProducerRecord]) -> list[ProducerRecord]:
        """Take the names out of the records in the store; return the others."""
        others: list[ProducerRecord] = []
        for record in found:
            if record.key.startswith(_KEY):
                self._records[record.key[len(_KEY) :]] = record
            else:
                others.append(record)
        return others

    def forget_others(self, sessions: dict[str, Session]) -> None:
        """Forget names whose session is not among ``sessions``: a repair has removed it."""
        for client_id in list(self._records):
            if client_id not in sessions:
                self._forget(client_id)

    def accept(self, client_id: str, name: ToldNames, epoch: str, now: Now) -> None:
        """Store the name of the connection that a CONNACK accepts, at either end.

        Args:
            client_id: the client identifier of the session at this end.
            name: the name, at the accepting end as its CONNACK tells it.
            epoch: the present epoch of the log.
            now: the time of the turn.
        """
        self._store(client_id, epoch, name, now)

    # -- the accepting end -------------------------------------------------------------

    def judge(self, client_id: str, told: ToldNames, epoch: str) -> tuple[int, str]:
        """Return the verdict on a CONNECT that resumes a session, and the sentence of a refusal.

        Args:
            client_id: the client identifier of the session.
            told: the connections that the CONNECT tells.
            epoch: the present epoch of the log.
        """
        stored_epoch, known = self._stored(client_id)
        verdict = judge_names(known, told, stored_epoch != epoch)
        if known is None or verdict != REFUSED:
            return verdict, ""
        return verdict, refusal_sentence(known.this, told)

    # -- the dialling end --------------------------------------------------------------

    def next_names(
        self, client_id: str, epoch: str, random: str, is_new: bool, now: Now
    ) -> ToldNames:
        """Store and return the names for the CONNECT that is sent next.

        Args:
            client_id: the client identifier of the session at this end.
            epoch: the present epoch of the log.
            random: 12 random hexadecimal characters, for a new name.
            is_new: whether this end has a new store, for a session that the other end may have.
            now: the time of the turn.
        """
        stored_epoch, stored = self._stored(client_id)
        if stored is None:
            stored_epoch, stored = epoch, ToldNames((NO_CONNECTION,))
        names = stored.names
        is_parted = is_new or stored.is_parted or stored_epoch != epoch
        if len(names) <= ATTEMPTS_MAX:
            second = max(names[0].second + 1, now.wall_us // MICROSECONDS)
            names = (ConnectionName(second, random), *names)
            self._store(client_id, stored_epoch, ToldNames(names, is_parted), now)
        return ToldNames(names, is_parted)

    def passed_over(self, client_id: str, now: Now) -> None:
        """Store that a CONNACK has no name: the other end does not take part, and stored none."""
        epoch, stored = self._stored(client_id)
        if stored is not None and len(stored.names) > 1:
            self._store(client_id, epoch, ToldNames((stored.last,), stored.is_parted), now)

    # -- stored ------------------------------------------------------------------------

    def on_session_end(self, session: Session) -> None:
        """Forget the name of the last connection of ``session``."""
        self._forget(session.client_id)

    def _forget(self, client_id: str) -> None:
        if self._records.pop(client_id, None) is not None:
            self._context.batch.put_producer(_KEY + client_id, None)

    def _stored(self, client_id: str) -> tuple[str, ToldNames | None]:
        """Return the epoch of the log when the names were stored, and the names."""
        record = self._records.get(client_id)
        if record is None:
            return "", None
        epoch, _, text = record.mark.partition(" ")
        return epoch, parse_names(text)

    def _store(self, client_id: str, epoch: str, names: ToldNames, now: Now) -> None:
        key = _KEY + client_id
        record = ProducerRecord(key, 1, now.steady_us, f"{epoch} {names}")
        self._records[client_id] = record
        self._context.batch.put_producer(key, record)
