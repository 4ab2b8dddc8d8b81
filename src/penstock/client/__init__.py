"""The client library: ``Client`` for asyncio, ``BlockingClient`` for scripts.

client          what a program uses
blocking        the same for programs without an event loop
options         every setting
checks          validates and converts what a program passes in
client_engine   the engine of a client
engine_options  the client's options as options of the engine
lifecycle       from opening the store to closing it
publication     the delivery of published messages
publisher_line  publishers that wait for room
age_limit       gives up messages that wait too long
outbox          keeps messages on disk
message, inbox  received messages, and their acknowledgement
subscriptions   SUBSCRIBE and UNSUBSCRIBE, and their answers
responses       responses of others, for requests and receipts
python_page     docs/python_api.md, of what a program uses
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
