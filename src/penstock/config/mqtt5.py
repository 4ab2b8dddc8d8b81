"""Features of MQTT 5: information for clients, and checks for them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.values import PrintableText
from penstock.engine.values.change_effects import AT_ONCE, NEW_CONNECTIONS, takes_effect


@takes_effect(NEW_CONNECTIONS)
class Mqtt5(SettingsGroup):
    """Features of MQTT 5: information for clients, and checks for them."""

    response_information: PrintableText = Field(default="", max_length=1000)
    """Beginning of the topics a client gets answers on, such as "answers/%c/", told to clients that
    ask for it. %c stands for the client identifier, %u for the user name. Empty for none."""

    check_payload_format: bool = True
    """Refuse messages (and wills) that say their payload is UTF-8 text when it is not, with reason
    code 0x99: QoS 1 and 2 by their acknowledgement, QoS 0 by ending the connection."""

    redirect: Literal["none", "temporary", "permanent"] = "none"
    """Send clients elsewhere instead of serving them: "temporary" (reason code 0x9C) or "permanent"
    (0x9D), with server_reference; clients before MQTT 5 get return code 3."""

    server_reference: Annotated[PrintableText, AT_ONCE] = Field(default="", max_length=1000)
    """Address of another server, such as "other.example:1883", for redirect, and for MQTT 5 clients
    when this broker stops. Several are separated by spaces. Empty for none."""

    @model_validator(mode="after")
    def _says_where(self) -> Mqtt5:
        if self.redirect != "none" and not self.server_reference:
            raise ValueError(
                f"mqtt5.redirect is {self.redirect!r}; say in mqtt5.server_reference where to"
            )
        return self
