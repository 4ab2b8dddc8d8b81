"""The front door of the engine: with ``values``, the only thing that anyone outside imports.

A shell owns what the engine does not touch: sockets, clocks, the store. It says what happened, and
takes what comes back at the end of each turn of its event loop. ``context`` is ``Server.context``::

      a connection was opened    ServerConnection(server, limits, now), or ClientConnection(…)
      bytes were received        connection.receive(data, now); connection.writable(now)
      a connection was lost      connection.lost(reason, now)
      a commit is durable        context.committed(commit); else context.commit_failed(why)
      time has passed            connection.tick(now) at its deadline_s(), server.tick(now)

      bytes to send              context.take_ready(), and link.take_ready() of each
      connections to close       context.take_closing()
      a commit to write          context.seal() if context.needs_commit; it has the packets that
                                 wait for it
      work for later turns       server.resume(now) if context.has_work

``Server`` is one broker, which operators ask through ``penstock.operators``; a ``Session`` is the
state of one client, which a bridge and the client library own, too. All else that passes the door
is in ``values``.
"""

from __future__ import annotations

from penstock.engine.access.authenticate import Authenticate as Authenticate
from penstock.engine.batch.commit import BodyRequester as BodyRequester
from penstock.engine.batch.commit import Commit as Commit
from penstock.engine.batch.engine_context import EngineContext as EngineContext
from penstock.engine.connection.connection import Connection as Connection
from penstock.engine.dialling.client_connection import ClientConnection as ClientConnection
from penstock.engine.dialling.client_inbound import ClientCallbacks as ClientCallbacks
from penstock.engine.dialling.unacknowledged import ReceivedMessage as ReceivedMessage
from penstock.engine.dialling.unacknowledged import UnacknowledgedMessages as UnacknowledgedMessages
from penstock.engine.publishing.connection_names import CONNECTION as CONNECTION
from penstock.engine.publishing.connection_names import ToldNames as ToldNames
from penstock.engine.publishing.connection_names import told_names as told_names
from penstock.engine.reporting.drop_counts import OwnerDrops as OwnerDrops
from penstock.engine.routing.prepared_sessions import PreparedSessions as PreparedSessions
from penstock.engine.routing.shared_group import SharedGroup as SharedGroup
from penstock.engine.server.draining import Draining as Draining
from penstock.engine.server.server import Server as Server
from penstock.engine.server.server_connection import ServerConnection as ServerConnection
from penstock.engine.session.lane import Lane as Lane
from penstock.engine.session.outcome import DeliveryOutcomes as DeliveryOutcomes
from penstock.engine.session.outlet import Outlet as Outlet
from penstock.engine.session.outlet import Passage as Passage
from penstock.engine.session.poison_message import PoisonMessageDetector as PoisonMessageDetector
from penstock.engine.session.retained import RetainedWalk as RetainedWalk
from penstock.engine.session.session import Session as Session
from penstock.engine.session.session import SessionSubscription as SessionSubscription
from penstock.engine.wire.byte_rates import ByteRates as ByteRates
from penstock.engine.wire.link import Link as Link
from penstock.engine.wire.link import Turn as Turn
