"""The client library: ``Client`` for asyncio, ``BlockingClient`` for scripts.

client          ``Client``: the methods for programs with an event loop
blocking        ``BlockingClient``: the same methods for programs without one
options         the settings of a client, and its status
checks          validates and converts the arguments of a program
client_engine   the client's session, connection and store, on the broker's engine
engine_options  converts the settings to the engine's limits and to CONNECT
lifecycle       opens the store, connects, drains, and closes
publication     the outcomes of published messages
publisher_line  the line of publishers that wait for room in the queue or socket
age_limit       drops messages that wait too long
outbox          the store of unacknowledged messages on disk
message, inbox  received messages, and their acknowledgement
subscriptions   SUBSCRIBE and UNSUBSCRIBE, and their answers
responses       the response topic, for requests and receipts
requests        publishes a request, and waits for its response
receipts        reports of a Penstock broker that a message is in a table
"""

from penstock.client.blocking import BlockingClient
from penstock.client.client import Client
from penstock.client.inbox import Messages
from penstock.client.message import Message
from penstock.client.options import Authentication, Options, Status
from penstock.client.publication import Publication
from penstock.client.receipts import Receipt, TableLocation

__all__ = [
    "Authentication",
    "BlockingClient",
    "Client",
    "Message",
    "Messages",
    "Options",
    "Publication",
    "Receipt",
    "Status",
    "TableLocation",
]
