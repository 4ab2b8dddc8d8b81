"""Carries out an operator's requests (``control.admin_requests``) in the loop of a running broker.

::

      control socket ─ request ─▶ Administration ── short portions (``portions``) ─▶ engine
                                       ╰── the changes are on disk ─▶ answer

However many sessions or retained messages there are, the event loop serves clients between the
portions. ``operators.listing`` makes the lists, ``operators.admin_actions`` the
changes.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Final, final

import msgspec

from penstock.auth.admin_tokens import AdminGrant
from penstock.control.admin_requests import (
    LIMIT_MAX,
    ClearRetained,
    Count,
    Drain,
    DrainState,
    EndDrain,
    Kick,
    LiftBan,
    ListBans,
    ListRetained,
    ListSessions,
    MakeBan,
    Page,
    RemoveSessions,
    SessionFilter,
    ShowDrain,
    ShowRetained,
    ShowSession,
)
from penstock.control.explanation import OFFSETS_MAX, Explain, FindReceivers
from penstock.control.recorded import ShowRecorded
from penstock.engine.api import Draining, RetainedWalk, Server, Session
from penstock.engine.values.bans import CLIENT, UNTIL_RESTART, USER
from penstock.engine.values.clock import Now
from penstock.engine.values.topics import is_topic_filter, is_topic_name
from penstock.errors import ConfigError, StoreError
from penstock.operators.admin_actions import (
    ban,
    clear_retained,
    drain,
    end_drain,
    kick,
    lift_ban,
    remove_session,
)
from penstock.operators.explaining import MatchWalk, ReceiverWalk, explain
from penstock.operators.listing import (
    JsonObject,
    SessionWalk,
    is_bridge,
    retained_summary,
    session_details,
    session_summary,
)
from penstock.operators.recorded import committed_about, recorded_events
from penstock.operators.selection import SessionSelection
from penstock.operators.session_summary import SessionSummary
from penstock.protocol import reasons
from penstock.runtime.driver import Driver
from penstock.services.control import Control
from penstock.services.portions import run_in_portions
from penstock.telemetry.logs import Sentence, get_logger, short

logger = get_logger(__name__)

VISITS: Final = 64
"""Entries that are visited between two readings of the clock."""

REFERENCE_CHARACTERS_MAX: Final = 1000  # as of mqtt5.server_reference
LEVELS_MAX: Final = 65_535
_BAN_S_MAX: Final = 10_000_000_000

WALKS_MAX: Final = 16
WALK_S_MAX: Final = 60.0
"""Time in seconds after which a list of retained messages that nobody continues is forgotten."""


class SessionPage(msgspec.Struct, frozen=True):
    """A ``Page`` of sessions in the form in which it is sent."""

    entries: list[SessionSummary]
    cursor: str


@final
class Administration:
    """Answers the requests of operators on the control socket.

    Args:
        server: the broker's engine.
        driver: the driver that runs the engine.
        role_of: returns the role of a user in admin.users; empty for none.
    """

    def __init__(
        self, server: Server, driver: Driver, role_of: Callable[[str], str] = lambda _: ""
    ) -> None:
        self._role_of = role_of
        self._server = server
        self._driver = driver
        self._walks: dict[str, tuple[RetainedWalk, float]] = {}  # by cursor; monotonic end
        self._walk_number = 0

    def serve_on(self, control: Control) -> None:
        """Answer requests on ``control``."""
        control.on(ListSessions, self.list_sessions)
        control.on(ShowSession, self.show_session)
        control.on(ShowRecorded, self.show_recorded)
        control.on(Explain, self.explain)
        control.on(FindReceivers, self.find_receivers)
        control.on(Kick, self.kick)
        control.on(RemoveSessions, self.remove)
        control.on(ListRetained, self.list_retained)
        control.on(ShowRetained, self.show_retained)
        control.on(ClearRetained, self.clear)
        control.on(Drain, self.drain)
        control.on(EndDrain, self.end_drain)
        control.on(ShowDrain, self.show_drain)
        control.on(ListBans, self.list_bans)
        control.on(MakeBan, self.ban)
        control.on(LiftBan, self.lift)

    # -- sessions ----------------------------------------------------------------------

    async def list_sessions(self, request: ListSessions) -> SessionPage:
        """Return a page of sessions, the oldest first.

        Raises:
            ConfigError: the cursor is none of such a list.
        """
        limit = _limit(request.limit)
        if request.cursor and not request.cursor.isdecimal():
            raise ConfigError(f"{request.cursor!r} is no cursor of a list of sessions")
        walk = SessionWalk(self._server, selection_of(request.filter), int(request.cursor or 0))
        entries: list[SessionSummary] = []

        def step() -> bool:
            now = self._driver.now()
            found = walk.step(min(VISITS, limit - len(entries)), now)
            entries.extend([session_summary(self._server, session) for session in found])
            return walk.is_finished or len(entries) >= limit

        await run_in_portions(self._driver, step)
        return SessionPage(entries, "" if walk.is_finished else str(walk.cursor))

    async def show_session(self, request: ShowSession) -> JsonObject | None:
        """Return the details of one session; None if the client has no session."""
        session = self._server.registry.sessions.get(request.client_id)
        if session is None:
            return None
        return session_details(self._server, session)

    async def show_recorded(self, request: ShowRecorded) -> JsonObject | None:
        """Return the flight recorder's record of one client; None if the client has no record."""
        return recorded_events(self._server, request.client_id)

    async def explain(self, request: Explain) -> JsonObject:
        """Return all facts about one client and a topic.

        Raises:
            ConfigError: there are too many offsets.
        """
        if len(request.offsets) > OFFSETS_MAX:
            raise ConfigError(f"at most {OFFSETS_MAX} offsets may be asked about at once")
        if request.topic:
            _topic_name(request.topic)
        session = self._server.registry.sessions.get(request.client_id)
        walk = MatchWalk(session, request.topic)

        def step() -> bool:
            if not walk.is_finished:
                walk.step(VISITS)
            return walk.is_finished

        await run_in_portions(self._driver, step)
        offsets = list(request.offsets)
        return explain(
            self._server, request.client_id, request.topic, offsets, walk.found, self._driver.now()
        )

    async def find_receivers(self, request: FindReceivers) -> JsonObject:
        """Return the state of one message for each receiver that its topic reaches now."""
        walk = ReceiverWalk(self._server, _topic_name(request.topic), request.offset)

        def step() -> bool:
            if not walk.is_finished:
                walk.step()
            return walk.is_finished

        await run_in_portions(self._driver, step)
        committed = committed_about(self._server, request.offset)
        return {"receivers": walk.found, "count": walk.count, "committed": committed}

    async def kick(self, request: Kick) -> Count:
        """End the connections of the selected sessions; return how many."""

        def act(session: Session) -> bool:
            if session.link is None or request.only_count:
                return session.link is not None
            now = self._now()
            if request.ban_s is not None:
                ban(
                    self._server,
                    CLIENT,
                    session.client_id,
                    request.ban_s,
                    request.why,
                    now,
                    request.by,
                )
            return kick(self._server, session, request.why, now, request.by)

        count = await self._for_each(request.filter, act)
        if not request.only_count:
            logger.info(
                "%s disconnected %d clients (%s)",
                _operator_name(request.by),
                count,
                _selection_text(request.filter),
            )
        return Count(count)

    async def remove(self, request: RemoveSessions) -> Count:
        """End the selected sessions; return how many."""
        if not request.only_count:
            self._refuse_without_store()
        connected_too = request.filter.connected is True
        count = await self._for_each(
            request.filter,
            lambda session: (
                (connected_too or session.link is None)
                and (
                    request.only_count
                    or remove_session(self._server, session, self._now(), request.by)
                )
            ),
        )
        if not request.only_count:
            await self._driver.wait_durable()
            logger.info(
                "%s removed %d sessions (%s)",
                _operator_name(request.by),
                count,
                _selection_text(request.filter),
            )
        return Count(count)

    async def _for_each(self, session_filter: SessionFilter, act: Callable[[Session], bool]) -> int:
        """Call ``act`` once for each selected session; return how many calls returned True.

        Sessions that are created meanwhile are not selected.
        """
        walk = SessionWalk(self._server, selection_of(session_filter))
        waiting: list[Session] = []
        count = 0

        def step() -> bool:
            nonlocal count
            if not waiting:
                waiting.extend(walk.step(VISITS, self._driver.now()))
            elif not waiting[-1].is_ended and not is_bridge(waiting[-1]):
                count += act(waiting.pop())
            else:
                waiting.pop()
            return walk.is_finished and not waiting

        await run_in_portions(self._driver, step)
        return count

    # -- retained messages -------------------------------------------------------------

    async def list_retained(self, request: ListRetained) -> Page:
        """Return a page of retained messages; its cursor is valid for ``WALK_S_MAX`` seconds."""
        limit = _limit(request.limit)
        walk = self._walk(request)
        cutoff_us = self._cutoff_us(request.older_than_s)
        entries: list[JsonObject] = []

        def step() -> bool:
            for _ in range(VISITS):
                if walk.is_finished or len(entries) >= limit:
                    return True
                message = walk.step()
                if message is not None and message.steady_us < cutoff_us:
                    entries.append(retained_summary(message))
            return False

        await run_in_portions(self._driver, step)
        return Page(entries, "" if walk.is_finished else self._keep_walk(walk))

    async def show_retained(self, request: ShowRetained) -> JsonObject | None:
        """Return one retained message with its payload; None if the topic has none."""
        message = self._server.router.retained.get(request.topic)
        if message is None:
            return None
        details = retained_summary(message)
        details["payload_base64"] = base64.b64encode(message.payload).decode()
        return details

    async def clear(self, request: ClearRetained) -> Count:
        """Remove the selected retained messages; return how many."""
        walk = self._server.router.retained.walk(_topic_filter(request.topic_filter))
        cutoff_us = self._cutoff_us(request.older_than_s)
        if not request.only_count:
            self._refuse_without_store()
        count = 0

        def step() -> bool:
            nonlocal count
            for _ in range(VISITS):
                if walk.is_finished:
                    return True
                message = walk.step()
                if message is None or message.steady_us >= cutoff_us:
                    continue
                count += request.only_count or clear_retained(
                    self._server, message.topic, request.by
                )
            return False

        await run_in_portions(self._driver, step)
        if not request.only_count:
            await self._driver.wait_durable()
            logger.info(
                "%s cleared %d retained messages ('%s'%s)",
                _operator_name(request.by),
                count,
                request.topic_filter,
                f", older than {request.older_than_s:g} s" if request.older_than_s else "",
            )
        return Count(count)

    def _walk(self, request: ListRetained) -> RetainedWalk:
        if not request.cursor:
            return self._server.router.retained.walk(_topic_filter(request.topic_filter))
        walk, ends_s = self._walks.pop(request.cursor, (None, 0.0))
        if walk is None or time.monotonic() > ends_s:
            raise ConfigError("this list was not continued for a while: begin it anew")
        return walk

    def _keep_walk(self, walk: RetainedWalk) -> str:
        now_s = time.monotonic()
        for cursor, (_, ends_s) in list(self._walks.items()):
            if now_s > ends_s or len(self._walks) >= WALKS_MAX:
                del self._walks[cursor]
        self._walk_number += 1
        cursor = f"r{self._walk_number}"
        self._walks[cursor] = walk, now_s + WALK_S_MAX
        return cursor

    def _cutoff_us(self, older_than_s: float) -> int:
        return self._now().steady_us + 1 - int(older_than_s * 1_000_000)

    # -- draining ----------------------------------------------------------------------

    async def drain(self, request: Drain) -> DrainState:
        """Begin to drain the broker, or change the rate and the other server; return the state.

        Raises:
            ConfigError: the rate or the other server's name is out of range.
        """
        if not 0 < request.per_s <= 1_000_000:
            raise ConfigError("clients sent away a second must be more than 0, at most 1000000")
        name = request.server_reference
        if len(name) > REFERENCE_CHARACTERS_MAX or not name.isprintable():
            raise ConfigError(
                "the other server's name has printable characters only, at most"
                f" {REFERENCE_CHARACTERS_MAX}"
            )
        code = reasons.SERVER_MOVED if request.moved else reasons.USE_ANOTHER_SERVER
        draining = Draining(code, request.server_reference, request.per_s, self._now())
        drain(self._server, draining, request.by)
        logger.warning(
            "%s empties this broker: no client is let in, and %g clients a second are sent to %s",
            _operator_name(request.by),
            request.per_s,
            request.server_reference or "no named server",
        )
        return self._drain_state()

    async def end_drain(self, request: EndDrain) -> bool:
        """Accept clients again; return whether they were refused before."""
        was_draining = end_drain(self._server, request.by)
        if was_draining:
            logger.warning(
                "%s ended the emptying: clients are let in again", _operator_name(request.by)
            )
        return was_draining

    async def show_drain(self, request: ShowDrain) -> DrainState:
        """Return whether the broker drains, and how many clients are still connected."""
        del request
        return self._drain_state()

    def _drain_state(self) -> DrainState:
        draining = self._server.draining
        left = len(self._server.connections)
        if draining is None:
            return DrainState(False, 0, 0, left)
        return DrainState(True, draining.clients_sent_away, draining.refused, left)

    # -- bans --------------------------------------------------------------------------

    async def list_bans(self, request: ListBans) -> Page:
        """Return a page of bans, the oldest first; they are few, so all are read in one turn.

        Raises:
            ConfigError: the cursor is none of such a list.
        """
        limit = _limit(request.limit)
        if request.cursor and not request.cursor.isdecimal():
            raise ConfigError(f"{request.cursor!r} is no cursor of a list of bans")
        begin = int(request.cursor or 0)
        now_s = self._now().monotonic_s
        bans = self._server.bans.bans_in_force(now_s)
        entries: list[JsonObject] = [
            {
                "kind": found.kind,
                "value": found.value,
                "left_s": None
                if found.until_s == UNTIL_RESTART
                else round(found.until_s - now_s, 1),
                "reason": found.reason,
            }
            for found in bans[begin : begin + limit]
        ]
        end = begin + len(entries)
        return Page(entries, str(end) if end < len(bans) else "")

    async def ban(self, request: MakeBan) -> str:
        """Ban a client, user or address; return the banned value in its canonical form, such as
        ``10.0.0.0/8``.

        Raises:
            ConfigError: there is no such address, or the ban lasts too long.
        """
        if not 0 <= request.for_s <= _BAN_S_MAX:
            raise ConfigError(f"a ban lasts 0 to {_BAN_S_MAX} seconds")
        self._check_role(request)
        try:
            made = ban(
                self._server,
                request.kind,
                request.value,
                request.for_s,
                request.why,
                self._now(),
                request.by,
            )
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._driver.end_turn_soon()
        logger.info("%s banned %s %s", _operator_name(request.by), made.kind, made.value)
        return made.value

    async def lift(self, request: LiftBan) -> bool:
        """End a ban; return whether there was such a ban.

        Raises:
            ConfigError: there is no such address.
        """
        self._check_role(request)
        try:
            was_banned = lift_ban(self._server, request.kind, request.value, request.by)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if was_banned:
            logger.info(
                "%s lifted the ban of %s %s",
                _operator_name(request.by),
                request.kind,
                request.value,
            )
        return was_banned

    def _check_role(self, request: MakeBan | LiftBan) -> None:
        """Refuse to act on a user whose role the operator has not."""
        role = self._role_of(request.value) if request.kind == USER else ""
        if role and not AdminGrant("", request.as_role).may_act_as(role):
            raise ConfigError(
                f"{request.value!r} has the role {role} in admin.users: only a user or token of"
                " that role may ban it, or lift its ban"
            )

    # -- the clock and the store -------------------------------------------------------

    def _now(self) -> Now:
        return self._driver.now()

    def _refuse_without_store(self) -> None:
        """Refuse a change that waits for the disk while the store cannot write.

        Raises:
            StoreError: the store cannot write now.
        """
        context = self._server.context
        if context.store_failure:
            raise StoreError(f"nothing was done: {context.store_failure}")


def _operator_name(by: str) -> Sentence:
    """Return the operator's name for a log line; "an operator" where the name is empty."""
    return Sentence(short(by) if by else "an operator")


def selection_of(session_filter: SessionFilter) -> SessionSelection:
    """Return the engine's selection for the filter of a request.

    Raises:
        ConfigError: a pattern or an address of the filter cannot be used.
    """
    try:
        return SessionSelection(
            session_filter.client,
            session_filter.user,
            session_filter.address,
            session_filter.connected,
            session_filter.older_than_s,
            session_filter.client_id,
        )
    except ValueError as error:
        raise ConfigError(f"the selection cannot be used: {error}") from None


def _selection_text(session_filter: SessionFilter) -> Sentence:
    """Return a selection as a log line shows it."""
    client = session_filter.client if session_filter.client_id is None else session_filter.client_id
    named = (("client", client), ("user", session_filter.user), ("address", session_filter.address))
    words = [f"{name} {short(value)!r}" for name, value in named if value is not None]
    if session_filter.connected is not None:
        words.append("connected" if session_filter.connected else "away")
    if session_filter.older_than_s:
        words.append(f"for longer than {session_filter.older_than_s:g} s")
    return Sentence(", ".join(words) or "all")


def _topic_filter(text: str) -> str:
    if not is_topic_filter(text, LEVELS_MAX):
        raise ConfigError(f"{text!r} is no topic filter")
    return text


def _topic_name(text: str) -> str:
    if not is_topic_name(text, LEVELS_MAX):
        raise ConfigError(f"{text!r} is no topic name")
    return text


def _limit(limit: int) -> int:
    if not 1 <= limit <= LIMIT_MAX:
        raise ConfigError(f"a page has 1 to {LIMIT_MAX} entries, not {limit}")
    return limit
