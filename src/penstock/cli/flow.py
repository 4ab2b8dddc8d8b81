"""`penstock flow`: the flow of every client of a running broker, as a table.

The command is an MQTT client: it subscribes to `$penstock/flow/#` and shows the first complete
round of reports (docs/sys_topics.md). Clients at a limit come first.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.table import Table

from penstock.cli.broker_options import CONNECT_S_MAX, WHY_SILENT
from penstock.cli.options import ConfigFile
from penstock.cli.screen import Screen, print_objects
from penstock.engine.values.limit_usage import LIMITS
from penstock.engine.values.topics import FLOW_TOPIC
from penstock.errors import ConfigError, PenstockError, RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.decode import PACKET_SIZE_BYTES_MAX, Decoder
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from penstock.telemetry.logs import printable

if TYPE_CHECKING:
    from penstock.config.address import Address

_PIPE_WIDTH: Final = 160
_READ_BYTES: Final = 65_536
_VERSIONS: Final = {0: "away", 3: "3.1", 4: "3.1.1", 5: "5"}
_ROUNDS_MAX: Final = 2  # the first may have begun before we subscribed

_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # of all addresses

JsonObject = dict[str, Any]  # the flow of one client, docs/sys_topics.md


class FlowUnavailable(PenstockError):
    """Raised when the broker did not report the flow."""


class UserAndPassword(NamedTuple):
    """User name and password; both None for an anonymous client."""

    username: str | None
    password: bytes | None


def show_flow(
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", metavar="HOST:PORT", help="The broker's address; as the settings say."
        ),
    ] = None,
    config: ConfigFile = None,
    username: Annotated[
        str | None, typer.Option("--username", metavar="NAME", help="User name.")
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="A file with the password in it."),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Clients shown, those at a limit first.")] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, for every client.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait.")
    ] = 30.0,
) -> None:
    """Show which limits the clients of a broker are at.

    Window, queue, drops and limits of each client, those at a limit first.
    """
    login = UserAndPassword(username, _password(password_file))
    address = _configured_address(config) if broker is None else _address(broker)
    flows = read_flows(address, login, timeout_s)
    if as_json:
        print_objects(flows)
    else:
        Screen(pipe_width=_PIPE_WIDTH).print(flow_table(flows, rows))


def read_flows(address: Address, login: UserAndPassword, timeout_s: float) -> list[JsonObject]:
    """Return the flow of every session of the broker, those at a limit first.

    Raises:
        ConfigError: there is no broker at ``address``.
        FlowUnavailable: the broker does not report the flow, or not to this user, or not in time.
    """
    ends_s = time.monotonic() + timeout_s
    try:
        limit_s = min(timeout_s, CONNECT_S_MAX)
        connection = socket.create_connection((address.host, address.port), limit_s)
    except OSError as error:
        raise ConfigError(
            f"no broker answers at {address}: {error.strerror or error}; give its address with"
            " --broker"
        ) from error
    flows: dict[str, JsonObject] = {}
    rounds = 0
    with closing(connection):
        connect = Connect("", V5, True, 0, None, login.username, login.password)
        connection.sendall(encode(connect, V5))
        own_id = ""
        for packet in _read_packets(connection, time.monotonic() + limit_s, ends_s):
            if isinstance(packet, Connack):
                own_id = _assigned_client_id(packet)
                subscribe = Subscribe(1, [Subscription(f"{FLOW_TOPIC}/#", 0)])
                connection.sendall(encode(subscribe, V5))
            elif isinstance(packet, Suback):
                _check_granted(packet)
            elif isinstance(packet, Publish) and packet.topic != FLOW_TOPIC:
                flow = json.loads(packet.payload)
                if flow["client_id"] != own_id:
                    flows[flow["client_id"]] = flow
            elif isinstance(packet, Publish):
                rounds += 1
                is_complete = len(flows) + 1 >= json.loads(packet.payload)["sessions"]
                if is_complete or rounds >= _ROUNDS_MAX:
                    connection.sendall(encode(Disconnect(0), V5))
                    break
    return sorted(flows.values(), key=_urgency)


def flow_table(flows: list[JsonObject], rows: int) -> Table:
    """Return the first ``rows`` of ``flows`` as a table."""
    shown = f"{rows} of {len(flows)}" if rows < len(flows) else str(len(flows))
    table = Table(title=f"{shown} clients, those at a limit first")
    for column in ("client", "MQTT"):
        table.add_column(column)
    for column in ("window", "queue", "queue bytes", "inbound", "unwritten bytes"):
        table.add_column(column, justify="right")
    for column in ("at its limit", "drops"):
        table.add_column(column)
    for flow in flows[:rows]:
        table.add_row(*_cells(flow))
    return table


def _cells(flow: JsonObject) -> list[str]:
    window, queue, inbound = flow["window"], flow["queue"], flow["inbound"]
    limits = flow["limits"]
    at_limits = []
    for name in LIMITS:
        use = limits[name]
        if use["reached"]:
            at_limits.append(f"{name} for {use['lasts_s']:.0f} s")
        elif use["times"]:
            at_limits.append(f"{name} {use['times']}x, {use['total_s']:.0f} s")
    queue_max = queue["messages_max"] or "∞"
    is_connected = flow["connected"]
    return [
        printable(str(flow["client_id"])),
        _VERSIONS.get(flow["version"], str(flow["version"])),
        f"{window['used']}/{window['size']}",
        f"{queue['messages']}/{queue_max}",
        f"{queue['bytes']:,}",
        f"{inbound['unacknowledged']}/{inbound['receive_maximum']}" if is_connected else "",
        f"{flow['unwritten_bytes']:,}" if is_connected else "",
        ", ".join(at_limits),
        ", ".join(f"{name} {count}" for name, count in flow["drops"].items()),
    ]


def _urgency(flow: JsonObject) -> tuple[bool, float, str]:
    """Return a sort key: clients at a limit first, the longest first; then by waiting messages."""
    longest_s = max(use["lasts_s"] for use in flow["limits"].values())
    waiting = flow["queue"]["messages"]
    return longest_s == 0, -(longest_s or waiting), str(flow["client_id"])


def _read_packets(connection: socket.socket, first_s: float, ends_s: float) -> Iterator[Packet]:
    """Yield the packets that the broker sends, the first until ``first_s`` and the others until
    ``ends_s``, times of the monotonic clock."""
    decoder = Decoder(PACKET_SIZE_BYTES_MAX, V5, server=False)
    is_first = True
    while True:
        try:
            packet = decoder.next_packet()
            if packet is not None:
                is_first = False
                yield packet
                continue
            limit_s = first_s if is_first else ends_s
            connection.settimeout(max(0.001, limit_s - time.monotonic()))
            data = connection.recv(_READ_BYTES)
        except TimeoutError:
            if is_first:
                raise FlowUnavailable(f"the broker does not answer CONNECT; {WHY_SILENT}") from None
            raise FlowUnavailable(
                "the broker reported nothing in time: its status.sys_interval_s may be 0, or more"
                " than --timeout"
            ) from None
        except RemoteProtocolError as error:
            raise FlowUnavailable(f"this is no MQTT 5 broker: {error}") from error
        except OSError as error:
            raise FlowUnavailable(f"the connection broke: {error.strerror or error}") from error
        if not data:
            raise FlowUnavailable("the broker closed the connection")
        decoder.feed(data)


def _assigned_client_id(answer: Connack) -> str:
    """Return our client identifier, which the broker assigned.

    Raises:
        FlowUnavailable: the broker refused the connection.
    """
    if answer.reason_code != reasons.SUCCESS:
        raise FlowUnavailable(
            f"the broker does not let us in: {reasons.name_of(answer.reason_code)}; see"
            " --username and --password-file"
        )
    properties = answer.properties
    return "" if properties is None else properties.assigned_client_identifier or ""


def _check_granted(answer: Suback) -> None:
    code = answer.reason_codes[0]
    if code >= 0x80:
        raise FlowUnavailable(
            f"the broker does not let us read {FLOW_TOPIC}/#: {reasons.name_of(code)}; its access"
            " list must allow that, and it must be Penstock"
        )


def _address(text: str) -> Address:
    from penstock.config.address import ADDRESS_FORM, Address  # pydantic comes with it

    try:
        return Address.parse(text)
    except ValueError:
        raise ConfigError(f"--broker is {text!r}, but must be {ADDRESS_FORM}") from None


def _configured_address(config: Path | None) -> Address:
    """Return the address on this machine of the first listener for plain TCP."""
    from penstock.config.address import Address
    from penstock.config.load import load_settings

    for listener in load_settings(config).listener.enabled_listeners():
        bind = listener.bind
        if listener.kind == "tcp" and isinstance(bind, Address) and bind.port != 0:
            return Address(_LOOPBACK.get(bind.host, bind.host), bind.port)
    raise ConfigError(
        "no listener of the settings is for plain TCP with a fixed port: give the address with"
        " --broker"
    )


def _password(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError(f"--password-file {path}: {error.strerror}") from error
