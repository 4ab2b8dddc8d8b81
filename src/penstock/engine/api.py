"""The front door of the engine: with ``values``, the only thing that anyone outside imports.

A shell owns what the engine does not touch: sockets, clocks, the store. It says what happened, in
five verbs, and takes what comes back at the end of a turn::

      shell                                             engine
      a connection was opened     ServerConnection(server, limits, now), ClientConnection(…)
      bytes were received         connection.receive(data, now)
      a connection was lost       connection.lost(reason, now)
      a commit is durable         context.committed(commit), or context.commit_failed(reason)
      time has passed             connection.tick(now), server.tick(now), connection.deadline_s()

      bytes to send               context.take_ready() ─▶ link.take_ready()
      connections to close        context.take_closing()
      a commit to write           context.seal() ─▶ Commit, with the packets that wait for it
      work left for later turns   context.has_turn(), server.resume(now)

``Server`` is one broker; ``Session`` the state of a client, which an operator reads and a bridge
or the client library owns. Names, records, limits and the like are in ``values``.
"""

from __future__ import annotations

from penstock.engine.access.authenticate import Authenticate as Authenticate
from penstock.engine.batch.commit import BodyRequester as BodyRequester
from penstock.engine.batch.commit import Commit as Commit
from penstock.engine.batch.engine_context import EngineContext as EngineContext
from penstock.engine.connection.connection import Connection as Connection
from penstock.engine.dialling.client_callbacks import ClientCallbacks as ClientCallbacks
from penstock.engine.dialling.client_connection import ClientConnection as ClientConnection
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
