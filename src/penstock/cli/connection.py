"""The options of a command that connects as an MQTT client: address, login, session, will."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.broker_options import BrokerOptions
from penstock.errors import ConfigError
from penstock.protocol.properties import Properties

if TYPE_CHECKING:
    from penstock.client.options import Settings
    from penstock.protocol.packets import Will

_FOR_EVER_S: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection(BrokerOptions):
    """The options for the broker's address, the login, the session and the will."""

    client_id: Annotated[
        str | None,
        typer.Option("-i", "--id", metavar="ID", help="Client identifier; default: a unique one."),
    ] = None
    id_prefix: Annotated[
        str | None,
        typer.Option("-I", "--id-prefix", metavar="PREFIX", help="-i PREFIX and the process id."),
    ] = None
    keeps_session: Annotated[
        bool,
        typer.Option(
            "-c",
            "--disable-clean-session",
            help="Resume the session of -i, which the broker keeps for the next time, too.",
        ),
    ] = False
    session_expiry: Annotated[
        str | None,
        typer.Option(
            "-x",
            "--session-expiry-interval",
            metavar="SECONDS",
            help="How long the broker keeps the session; -1 for ever, as with -c.",
        ),
    ] = None
    follow_references: Annotated[
        bool,
        typer.Option(
            "--follow-references",
            help="Follow the Server Reference of MQTT 5, also to a broker not named here.",
        ),
    ] = False
    will_topic: Annotated[
        str | None,
        typer.Option("--will-topic", metavar="TOPIC", help="Topic of the will."),
    ] = None
    will_payload: Annotated[
        str | None, typer.Option("--will-payload", metavar="TEXT", help="Payload of the will.")
    ] = None
    will_qos: Annotated[int, typer.Option("--will-qos", min=0, max=2, metavar="0|1|2")] = 0
    will_retain: Annotated[bool, typer.Option("--will-retain", help="Retain the will.")] = False
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "-D",
            "--property",
            metavar="COMMAND IDENTIFIER VALUE",
            help="An MQTT 5 property, such as 'publish content-type text/plain' or 'publish"
            " user-property NAME VALUE'.",
        ),
    ] = None

    def with_url_topic(self, topics: list[str] | None) -> list[str]:
        """Return the topics given with ``-t``, and the topic of the URL given with ``-L``."""
        url_topic = self.parsed_url().topic
        return [*(topics or []), *([url_topic] if url_topic else [])]

    def settings(self, properties: dict[str, Properties], *, durable: bool = False) -> Settings:
        """Return the settings of ``Client``, except the URL.

        Args:
            properties: the properties of ``-D``, by command.
            durable: whether there is an outbox, whose session never expires.

        Raises:
            ConfigError: the options have a mistake.
        """
        login = self.login()
        if properties and login["version"] != "5":
            raise ConfigError("-D needs MQTT 5: leave out -V")
        client_id = self._client_id()
        expiry_s = self._expiry_s()
        if (self.keeps_session or expiry_s == _FOR_EVER_S) and not client_id and not durable:
            raise ConfigError("a session that is kept needs a client identifier: give -i")
        connect = properties.get("connect") or Properties()
        if connect.session_expiry_interval is not None:
            if expiry_s is not None:
                raise ConfigError("give only one of -x and -D connect session-expiry-interval")
            expiry_s = connect.session_expiry_interval
        settings: Settings = {
            **login,
            "client_id": client_id,
            "clean_start": None if durable else not self.keeps_session,
            "session_expiry_s": expiry_s,
            "follow_references": self.follow_references,
            "will": self._will(properties.get("will")),
            "user_properties": connect.user_properties or [],
        }
        if connect.receive_maximum is not None:
            settings["receive_maximum"] = connect.receive_maximum
        if connect.maximum_packet_size is not None:
            settings["packet_bytes_max"] = connect.maximum_packet_size
        return settings

    def _client_id(self) -> str:
        if self.id_prefix is None:
            return self.client_id or ""
        if self.client_id is not None:
            raise ConfigError("give only one of -i and -I")
        return f"{self.id_prefix}{os.getpid()}"

    def _expiry_s(self) -> int | None:
        if self.session_expiry is None:
            return _FOR_EVER_S if self.keeps_session else None
        if self.session_expiry in ("-1", "∞"):
            return _FOR_EVER_S
        if not self.session_expiry.isdecimal() or int(self.session_expiry) > _FOR_EVER_S:
            raise ConfigError("-x must be 0 to 4294967295 seconds, or -1 for ever")
        return int(self.session_expiry)

    def _will(self, properties: Properties | None) -> Will | None:
        if self.will_topic is None:
            if self.will_payload is not None or self.will_qos or self.will_retain or properties:
                raise ConfigError("a will needs --will-topic")
            return None
        from penstock.protocol.packets import Will

        payload = os.fsencode(self.will_payload or "")
        return Will(self.will_topic, payload, self.will_qos, self.will_retain, properties)
