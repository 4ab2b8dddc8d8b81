"""The client library: ``Client`` for asyncio, ``BlockingClient`` for scripts.

`client.py` is what a program sees, `checks.py` what it may be given, `core.py` the engine beneath
it, `engine_options.py` what the options are to that; `publication.py` what became
of what was published, `room.py` who waits for room, `outbox.py` what keeps it on disk;
`message.py` and `inbox.py` what came and how it is acknowledged; `subscriptions.py` what is
asked of the server, `responses.py` what others answer, to `requests.py` and `receipts.py`;
`options.py` everything that can be told.
"""

from penstock.client.blocking import BlockingClient
from penstock.client.client import Client
from penstock.client.inbox import Messages
from penstock.client.message import Message
from penstock.client.options import Authentication, Options, Status
from penstock.client.publication import Publication
from penstock.client.receipts import Landed, Receipt

__all__ = [
    "Authentication",
    "BlockingClient",
    "Client",
    "Landed",
    "Message",
    "Messages",
    "Options",
    "Publication",
    "Receipt",
    "Status",
]
