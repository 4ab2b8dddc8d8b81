"""What a server tells its clients beyond what they must know, as far as settings decide it."""

from __future__ import annotations

from typing import Final, final

from penstock.protocol import reasons

REDIRECTIONS: Final[dict[str, int]] = {
    "none": reasons.SUCCESS,
    "temporary": reasons.USE_ANOTHER_SERVER,
    "permanent": reasons.SERVER_MOVED,
}


@final
class ServerOptions:
    """Settings of MQTT 5 that are no bounds.

    Args:
        response_information: told to clients that ask; ``%c`` stands for the client
            identifier, ``%u`` for the user name; empty = none.
        check_payload_format: refuse what says that it is UTF-8 and is not.
        redirect: a name of ``REDIRECTIONS``: where clients are sent instead of being served.
        server_reference: where they find another server; also told at shutdown.
    """

    def __init__(
        self,
        response_information: str = "",
        check_payload_format: bool = True,
        redirect: str = "none",
        server_reference: str = "",
    ) -> None:
        self.check_payload_format = check_payload_format
        self.redirect = REDIRECTIONS[redirect]  # reason code for CONNACK; 0: serve them
        self.server_reference = server_reference
        self._response_information = response_information

    @property
    def farewell(self) -> int:
        """The reason code of DISCONNECT when this server shuts down."""
        if not self.server_reference:
            return reasons.SERVER_SHUTTING_DOWN
        return self.redirect or reasons.USE_ANOTHER_SERVER

    def response_information_for(self, client_id: str, username: str) -> str | None:
        """The response information for a client, None when there is none for it.

        It is the beginning of response topics, so that names with a wildcard cannot be in it.
        """
        template = self._response_information
        if not template:
            return None
        for mark, name in (("%c", client_id), ("%u", username)):
            if mark in template and (not name or "+" in name or "#" in name):
                return None
        parts = template.split("%c")
        return client_id.join([part.replace("%u", username) for part in parts])


def is_utf8(payload: bytes) -> bool:
    """Whether ``payload`` is what its format indicator 1 says (v5 §3.3.2.3.2)."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
